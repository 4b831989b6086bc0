"""Tokenizes passages; in a corpus with `titles: sep`, title and text form a pair.

For BERT this is `[CLS] title [SEP] text [SEP]`, as in Chang et al. (2020, §4.1) and SimLM's code, with the separator
that the tokenizer sets. A passage without a title is `[CLS] text [SEP]`, as with every other setting of `titles`.
SimLM's code also passes the tokenizer's token types, 0 for the title and 1 for the text. Here all types are 0, as in
pre-training on pairs and in most starting encoders, whose type 1 was not trained for retrieval.

If a title or text spells out a special token (`[SEP]`), it is tokenized like any other word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedTokenizerBase

from stillhouse.corpus.titles import divided
from stillhouse.errors import InputError
from stillhouse.retrieval.models.tokenizer_files import token_ids


def cut_passages(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int, prompt: str = ""
) -> list[list[int]]:
    """The token ids of each passage, at most `max_length` with special tokens; the longer side of a pair is cut.

    `texts` come from `passage_text`; `prompt` is put before each. Raises `InputError` for a tokenizer that sets no
    separator between a title and a text.
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
        given: Sequence[Any] = [prompt + text for text in own]
        if titled:
            given = [(prompt + parts[row][0], text) for row, text in zip(rows, own)]
        for row, cut in zip(rows, token_ids(tokenizer, given, max_length, separated)):
            ids[row] = cut
    return ids


def separators(tokenizer: PreTrainedTokenizerBase) -> int:
    """The number of separator tokens between the two texts of a pair: 1 for BERT, 2 for RoBERTa.

    Raises `InputError` for a tokenizer that sets none.
    """
    between: int = tokenizer.num_special_tokens_to_add(pair=True) - tokenizer.num_special_tokens_to_add(pair=False)
    if tokenizer.sep_token_id is None or between < 1:
        raise InputError(
            "the tokenizer sets no separator between a title and a text, which `titles: sep` of ingest needs; "
            "set titles to space, colon or line, or start from an encoder like BERT"
        )
    return between
