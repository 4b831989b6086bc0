"""Writing a tokenizer so that the same tokenizer gives the same bytes, wherever and however it was loaded."""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedTokenizerBase

OF_THE_LOADING = ("is_local", "local_files_only", "name_or_path", "cache_dir", "token", "revision")
"""Arguments of `from_pretrained` that transformers keeps and would write: they say how a tokenizer was found."""


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Writes the tokenizer's files into a model folder."""
    for name in OF_THE_LOADING:
        tokenizer.init_kwargs.pop(name, None)
    tokenizer.save_pretrained(folder)
