"""Tests that need a GPU; elsewhere they are skipped. STILLHOUSE_TEST_DEVICE=cpu lets the CPU stand in for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from stillhouse.models.acceleration import replaced

HERE = Path(__file__).resolve().parent
DEVICE = torch.device(os.environ.get("STILLHOUSE_TEST_DEVICE") or "cuda")
for folder in (
    "models",
    "models/acceleration",
    "search",
    "training",
):  # whose models and losses are tried on the GPU too
    sys.path.append(str(HERE.parent / folder))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, and skip them where there is no GPU."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if DEVICE.type == "cuda" and not torch.cuda.is_available():
                item.add_marker(pytest.mark.skip(reason="there is no GPU"))


@pytest.fixture(scope="session")
def device() -> torch.device:
    """The GPU, or what stands in for it."""
    return DEVICE


@pytest.fixture(autouse=True)
def residuals_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU that stands in for the GPU adds residuals in bf16 too."""
    monkeypatch.setattr(replaced, "DEVICE", DEVICE.type)


@pytest.fixture(autouse=True, scope="package")
def few_threads() -> Iterator[None]:
    """The CPU computes only small references, often in many processes at once."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
