"""What a benchmark sets for its process stays with it."""

from __future__ import annotations

from collections.abc import Iterator

import faiss
import pytest
import torch


@pytest.fixture(autouse=True)
def same_threads() -> Iterator[None]:
    """Benchmarks choose a number of threads, which shows in the last bits of what later tests compute."""
    threads, of_faiss = torch.get_num_threads(), faiss.omp_get_max_threads()
    yield
    torch.set_num_threads(threads)
    faiss.omp_set_num_threads(of_faiss)
