"""Counts the tokens of texts with a model's own tokenizer. This file does not import PyTorch for a `tokenizer.json`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stillhouse.retrieval.models.saved_files import lower_cased, transformer_in

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CHARACTERS_READ = 4_000
"""Of each text; the tokens of a longer one are counted in proportion."""


def token_lengths(texts: Sequence[str], folder: Path) -> list[int] | None:
    """How many tokens each text has for the model in `folder`, special tokens included and nothing cut off.

    None if the folder has no tokenizer that can be read.
    """
    parts = [text[:CHARACTERS_READ].encode("utf-8", "replace").decode("utf-8") for text in texts]
    try:
        encodings = _tokenizer(folder).encode_batch_fast(parts)
    except Exception:  # tokenizers raises nearly anything over a damaged file; `fetch-model` reports it
        return None
    return [
        round(len(encoding.ids) * max(1.0, len(text) / CHARACTERS_READ)) for text, encoding in zip(texts, encodings)
    ]


def _tokenizer(folder: Path) -> Tokenizer:
    """A tokenizer that cuts and pads nothing."""
    if (transformer_in(folder) / "tokenizer.json").is_file():
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(transformer_in(folder) / "tokenizer.json"))
        lower_cased(tokenizer, folder)
    else:
        from stillhouse.retrieval.models.tokenizer_files import load_tokenizer

        tokenizer = load_tokenizer(folder).backend_tokenizer
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
