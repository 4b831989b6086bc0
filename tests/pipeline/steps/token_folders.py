"""Token folders that tests write by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from stillhouse.core.artifacts import write_manifest


def write_tokens(folder: Path, passages: list[list[int]], tokenizer: str = "") -> Path:
    """Write a token folder in which even numbers begin a word."""
    folder.mkdir()
    ids = np.array([token for passage in passages for token in passage], dtype=np.int32)
    np.save(folder / "ids.npy", ids)
    np.save(folder / "offsets.npy", np.cumsum([0] + [len(passage) for passage in passages]))
    np.save(folder / "word_starts.npy", ids % 2 == 0)
    write_manifest(folder, "tokenize", {}, {}, {"tokenizer": tokenizer})
    return folder
