"""Settings that a benchmark makes for its process do not affect later tests."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import faiss
import pytest
import torch


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    """Restores the number of threads, which benchmarks change and which affects the last bits of later results."""
    threads, of_faiss = torch.get_num_threads(), faiss.omp_get_max_threads()
    yield
    torch.set_num_threads(threads)
    faiss.omp_set_num_threads(of_faiss)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of data sets with a `wiki-intro` of 300 short passages."""
    text = "the fox jumps over a lazy dog while seven grey owls watch from an old tree near our river"
    words = text.split()
    folder = tmp_path / "data"
    (folder / "wiki-intro").mkdir(parents=True)
    with gzip.open(folder / "wiki-intro" / "corpus.jsonl.gz", "wt", encoding="utf-8") as file:
        for number in range(300):
            text = " ".join(words[(number * step) % len(words)] for step in range(2, 30))
            file.write(json.dumps({"_id": f"w{number}", "title": f"Owl {number}", "text": f"{text}."}) + "\n")
    return folder
