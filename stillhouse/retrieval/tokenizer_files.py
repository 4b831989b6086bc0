"""Reading a model folder's tokenizer, and writing it: the same bytes, wherever and however it was loaded."""

from __future__ import annotations

import shutil
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from stillhouse.errors import InputError

OF_THE_LOADING = ("is_local", "local_files_only", "name_or_path", "cache_dir", "token", "revision")
"""Arguments of `from_pretrained` that transformers keeps and would write: they say how a tokenizer was found."""

FILES = ("tokenizer.json", "tokenizer_config.json")
"""What `save_pretrained` writes of a tokenizer that has a backend in Rust, as all have here."""


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Raises `InputError` for a folder without a tokenizer."""
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError):
        raise InputError(
            f"{folder} holds no tokenizer that can be read; give a model folder, as `stillhouse fetch-model` writes it"
        ) from None
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
