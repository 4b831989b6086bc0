"""Reads and writes a model folder's tokenizer, and tokenizes passages with it.

In a corpus with `titles: sep`, title and text of a passage form a pair. For BERT this is `[CLS] title [SEP] text
[SEP]`, as in Chang et al. (2020, §4.1) and SimLM's code, with the separator that the tokenizer sets. A passage without
a title is `[CLS] text [SEP]`, as with every other setting of `titles`. SimLM's code also passes the tokenizer's token
types, 0 for the title and 1 for the text. Here all types are 0, as in pre-training on pairs and in most starting
encoders, whose type 1 was not trained for retrieval.

If a title or text spells out a special token (`[SEP]`), it is tokenized like any other word.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.tokenization_utils_base import TruncationStrategy
from transformers.utils import PaddingStrategy

from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.checks import Truncation
from stillhouse.corpus.store import Corpus, passage_text_blocks
from stillhouse.corpus.titles import divided
from stillhouse.models.encoder_settings import (
    CONFIG,
    EncoderSettings,
    json_object,
    lower_cased,
    read_settings,
    transformer_in,
)
from stillhouse.models.transformer import read_config, reading

OF_THE_LOADING = ("is_local", "local_files_only", "name_or_path", "cache_dir", "token", "revision")
"""Arguments of `from_pretrained` about where a tokenizer was found, which transformers would otherwise write to the
tokenizer's files."""

FILES = ("tokenizer.json", "tokenizer_config.json")
"""The files that `save_pretrained` writes for a tokenizer with a Rust backend, as all have here."""


VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model", "tokenizer*.tiktoken")
"""One of these files holds the vocabulary; without any, transformers makes a tokenizer without words."""
DETAILS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
"""Other JSON files that a tokenizer may be built from."""
REMEDY = "give a model folder, as `stillhouse fetch-model` writes it"


def load_tokenizer(folder: Path, padding: bool = True) -> PreTrainedTokenizerBase:
    """Raises `InputError` for a folder without a tokenizer, and for a tokenizer that is damaged or cannot pad."""
    folder = transformer_in(folder)
    found = sorted(path for name in VOCABULARIES for path in folder.glob(name))
    if not found:
        raise InputError(f"{folder / VOCABULARIES[0]} is missing: {folder} has no tokenizer that can be read; {REMEDY}")
    for name in DETAILS:
        if (folder / name).is_file():
            json_object(folder / name)
    if (folder / CONFIG).is_file():
        read_config(folder)  # names the kind of tokenizer if the tokenizer's own settings do not
    with reading(found[0], REMEDY):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        padded = tokenizer.pad_token_id in tokenizer.all_special_ids
    if not tokenizer.is_fast:
        raise InputError(f"{folder}: the tokenizer has no fast version (tokenizer.json), which is required; {REMEDY}")
    lower_cased(tokenizer.backend_tokenizer, folder)
    if padding and not padded:
        raise InputError(f"{folder}: the tokenizer has no padding token; {REMEDY}")
    return tokenizer


def token_ids(
    tokenizer: Any,
    texts: Sequence[str] | Sequence[tuple[str, str]],
    max_length: int,
    split_special_tokens: bool = False,
    special: bool = True,
) -> list[list[int]]:
    """The ids of texts or of pairs of texts, cut to `max_length`; a pair's longer side is cut.

    `special`: whether special tokens are added around and between them.

    Equals `tokenizer(texts, truncation=True, max_length=max_length)["input_ids"]` in two thirds of the time: nothing
    is made that nobody reads, neither the places of tokens in the text nor masks.
    """
    tokenizer.set_truncation_and_padding(
        PaddingStrategy.DO_NOT_PAD, TruncationStrategy.LONGEST_FIRST, max_length, 0, None, None
    )
    backend = tokenizer.backend_tokenizer
    backend.encode_special_tokens = split_special_tokens or tokenizer.split_special_tokens
    return [encoding.ids for encoding in backend.encode_batch_fast(texts, add_special_tokens=special)]


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write the tokenizer's files into a model folder."""
    for name in OF_THE_LOADING:
        tokenizer.init_kwargs.pop(name, None)
    tokenizer.save_pretrained(folder)


def copy_tokenizers(source: Path, folder: Path) -> None:
    """Overwrite the tokenizer files of a model folder and its towers with those of another folder of the same model.

    A loaded tokenizer would be written with the length at which it last truncated texts.
    """
    for path in sorted(folder.rglob("*")):
        original = source / path.relative_to(folder)
        if path.name in FILES and original.is_file():
            shutil.copyfile(original, path)


def cut_passages(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int, prompt: str = "", special: bool = True
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
        if titled:
            separators(tokenizer)
            given: Sequence[Any] = [(prompt + parts[row][0], parts[row][1]) for row in rows]
        else:
            given = [prompt + parts[row][1] for row in rows]
        for row, cut in zip(rows, token_ids(tokenizer, given, max_length, separated, special)):
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


def refuse_long_prompts(tokenizer: PreTrainedTokenizerBase, settings: EncoderSettings) -> None:
    """Raises `InputError` for a prompt that leaves no room for a text."""
    for role in ("query", "passage"):
        prompt, length = getattr(settings, f"{role}_prompt"), getattr(settings, f"{role}_length")
        # Calling the tokenizer itself would change its truncation and padding, which are saved with it.
        tokens = sum(tokenizer.backend_tokenizer.encode(prompt).attention_mask)
        if tokens >= length:
            raise InputError(
                f"{role}_prompt takes {tokens} tokens, including special tokens, but {role}_length is {length}; raise "
                "the length or shorten the prompt"
            )


COUNTED = 10_000
"""The passages that are tokenized; of a larger corpus, a sample, whose share is within 0.01 of that of all."""
SEED = 0


@doing("counting truncated passages")
def count_truncated(corpus: Corpus, folder: Path) -> Truncation:
    """The share of passages longer than the `passage_length` of the model in `folder`, by its own tokenizer.

    Raises `InputError` for a folder without a tokenizer.
    """
    settings, tokenizer = read_settings(folder), load_tokenizer(folder, padding=False)
    rows = None
    if corpus.passage_count > COUNTED:
        rows = np.sort(np.random.default_rng(SEED).choice(corpus.passage_count, COUNTED, replace=False))
    longest = settings.passage_length
    counted = longer = 0
    for texts in passage_text_blocks(corpus, rows):
        # One token more than the model reads is enough to know.
        ids = cut_passages(tokenizer, texts, longest + 1, settings.passage_prompt)
        counted += len(ids)
        longer += sum(len(own) > longest for own in ids)
    return Truncation(longest, longer / max(counted, 1), counted)
