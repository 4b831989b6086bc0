"""The retriever whose indexes the tests of steps build and search."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def retriever(run_step: Callable[..., dict[str, Path]], tiny_model: Path) -> Path:
    settings = {"model": str(tiny_model), "pooling": "mean", "query_length": 16, "passage_length": 24}
    return run_step("fetch-model", {}, **settings)["encoder"]
