"""Reads a model folder's tokenizer, and writes it with the same bytes no matter where and how it was loaded."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase
from transformers.tokenization_utils_base import TruncationStrategy
from transformers.utils import PaddingStrategy

from stillhouse.errors import InputError
from stillhouse.retrieval.models.model_files import reading
from stillhouse.retrieval.models.model_folder import read_config
from stillhouse.retrieval.models.saved_files import CONFIG, json_object, lower_cased, transformer_in

OF_THE_LOADING = ("is_local", "local_files_only", "name_or_path", "cache_dir", "token", "revision")
"""Arguments of `from_pretrained` about where a tokenizer was found, which transformers would write to its files."""

FILES = ("tokenizer.json", "tokenizer_config.json")
"""The files that `save_pretrained` writes for a tokenizer with a Rust backend, as all have here."""


VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model", "tokenizer*.tiktoken")
"""One of these files holds the vocabulary; without any, transformers makes a tokenizer without words."""
DETAILS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
"""Other JSON files that a tokenizer may be built from."""
REMEDY = "give a model folder, as `stillhouse fetch-model` writes it"


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
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
    if not padded:
        raise InputError(f"{folder}: the tokenizer has no padding token; {REMEDY}")
    return tokenizer


def token_ids(
    tokenizer: Any,
    texts: Sequence[str] | Sequence[tuple[str, str]],
    max_length: int,
    split_special_tokens: bool = False,
) -> list[list[int]]:
    """The ids of texts or of pairs of texts, with special tokens, cut to `max_length`; a pair's longer side is cut.

    Equals `tokenizer(texts, truncation=True, max_length=max_length)["input_ids"]` in two thirds of the time: nothing
    is made that nobody reads, neither the places of tokens in the text nor masks.
    """
    tokenizer.set_truncation_and_padding(
        PaddingStrategy.DO_NOT_PAD, TruncationStrategy.LONGEST_FIRST, max_length, 0, None, None
    )
    backend = tokenizer.backend_tokenizer
    backend.encode_special_tokens = split_special_tokens or tokenizer.split_special_tokens
    return [encoding.ids for encoding in backend.encode_batch_fast(texts, add_special_tokens=True)]


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
