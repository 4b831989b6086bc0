"""Tests find the package of benchmarks."""

import sys
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package of this name, not this folder of tests."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2]))
    monkeypatch.delitem(sys.modules, "benchmarks", raising=False)
