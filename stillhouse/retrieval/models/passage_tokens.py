"""Cuts passages into tokens; those of a corpus with `titles: sep` as the tokenizer's pair of title and text.

`[CLS] title [SEP] text [SEP]` for BERT: the form of Chang et al. (2020, §4.1) and of SimLM's authors, with whatever
separator the tokenizer itself sets. A passage without a title is `[CLS] text [SEP]`, as in every other way of reading
titles. SimLM's authors also pass the tokenizer's token types, 0 for the title and 1 for the text; here all types are 0,
as in pre-training on pairs and in most encoders that a training starts from, whose type 1 no retrieval has trained.

A special token that title or text spell out (`[SEP]`) is cut like any other word.
"""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from stillhouse.corpus.titles import divided
from stillhouse.errors import InputError


def cut_passages(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int, prompt: str = ""
) -> list[list[int]]:
    """The token ids of each passage, at most `max_length` with special tokens; of a pair the longer side is cut.

    `texts` are as `passage_text` gives them; `prompt` stands before each. Raises `InputError` for a tokenizer that sets
    no separator between a title and a text.
    """
    rows_of: dict[tuple[bool, bool], list[int]] = {}
    parts = [divided(text) for text in texts]
    for row, (title, _, separated) in enumerate(parts):
        rows_of.setdefault((separated, bool(title)), []).append(row)
    ids: list[list[int]] = [[]] * len(texts)
    for (separated, titled), rows in rows_of.items():
        own = [parts[row][1] for row in rows]
        if titled:
            separators(tokenizer)
        encoded = tokenizer(
            [prompt + parts[row][0] for row in rows] if titled else [prompt + text for text in own],
            own if titled else None,
            truncation=True,
            max_length=max_length,
            return_token_type_ids=False,
            split_special_tokens=separated or None,
        )
        for row, cut in zip(rows, encoded["input_ids"]):
            ids[row] = cut
    return ids


def separators(tokenizer: PreTrainedTokenizerBase) -> int:
    """How many separator tokens stand between the two texts of a pair: 1 for BERT, 2 for RoBERTa.

    Raises `InputError` for a tokenizer that sets none.
    """
    between: int = tokenizer.num_special_tokens_to_add(pair=True) - tokenizer.num_special_tokens_to_add(pair=False)
    if tokenizer.sep_token_id is None or between < 1:
        raise InputError(
            "the tokenizer sets no separator between a title and a text, which `titles: sep` of ingest asks for; "
            "set titles to space, colon or line, or start from an encoder like BERT"
        )
    return between
