"""Reading a model folder's tokenizer, and writing it: the same bytes, wherever and however it was loaded."""

from __future__ import annotations

import shutil
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from stillhouse.errors import InputError
from stillhouse.retrieval.models.model_files import json_object, reading
from stillhouse.retrieval.models.model_folder import CONFIG, read_config

OF_THE_LOADING = ("is_local", "local_files_only", "name_or_path", "cache_dir", "token", "revision")
"""Arguments of `from_pretrained` that transformers keeps and would write: they say how a tokenizer was found."""

FILES = ("tokenizer.json", "tokenizer_config.json")
"""What `save_pretrained` writes of a tokenizer that has a backend in Rust, as all have here."""


VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model", "tokenizer*.tiktoken")
"""One of these files holds the words; without them transformers makes a tokenizer that knows none."""
DETAILS = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
"""Files of JSON that a tokenizer may be made from as well."""
REMEDY = "give a model folder, as `stillhouse fetch-model` writes it"


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Raises `InputError` for a folder without a tokenizer, one that is damaged, and one that cannot pad."""
    found = sorted(path for name in VOCABULARIES for path in folder.glob(name))
    if not found:
        raise InputError(
            f"{folder / VOCABULARIES[0]} is missing: {folder} holds no tokenizer that can be read; {REMEDY}"
        )
    for name in DETAILS:
        if (folder / name).is_file():
            json_object(folder / name)
    if (folder / CONFIG).is_file():
        read_config(folder)  # names the kind of tokenizer where the tokenizer's own settings do not
    with reading(found[0], REMEDY):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        padded = tokenizer.pad_token_id in tokenizer.all_special_ids
    if not tokenizer.is_fast:
        raise InputError(f"{folder}: the tokenizer has no fast version (tokenizer.json), which is read here; {REMEDY}")
    if not padded:
        raise InputError(f"{folder}: the tokenizer has no padding token; {REMEDY}")
    return tokenizer


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Writes the tokenizer's files into a model folder."""
    for name in OF_THE_LOADING:
        tokenizer.init_kwargs.pop(name, None)
    tokenizer.save_pretrained(folder)


def copy_tokenizers(source: Path, folder: Path) -> None:
    """Gives the tokenizers in a model folder and its towers the bytes of those in another folder of the same model.

    One that has been loaded is written with the length at which it cut texts last.
    """
    for path in sorted(folder.rglob("*")):
        original = source / path.relative_to(folder)
        if path.name in FILES and original.is_file():
            shutil.copyfile(original, path)
