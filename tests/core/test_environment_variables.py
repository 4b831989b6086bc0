"""Environment variables that are set for a block: a child process sees them, and later ones see what was before."""

from __future__ import annotations

import subprocess
import sys

import pytest

from stillhouse.core.environment_variables import environment_variables

UNSET, EMPTY, FILLED = NAMES = ("STILLHOUSE_TEST_UNSET", "STILLHOUSE_TEST_EMPTY", "STILLHOUSE_TEST_FILLED")
BEFORE = "[None, '', 'old']"


@pytest.fixture(autouse=True)
def three_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(UNSET, raising=False)
    monkeypatch.setenv(EMPTY, "")
    monkeypatch.setenv(FILLED, "old")


def seen() -> str:
    """The values that a child process has."""
    program = f"import os; print([os.environ.get(name) for name in {NAMES}])"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def test_values_hold_within_the_block_and_what_was_before_returns() -> None:
    assert seen() == BEFORE
    with environment_variables(dict.fromkeys(NAMES, "new")):
        assert seen() == "['new', 'new', 'new']"
        with environment_variables(dict.fromkeys(NAMES, None)):
            assert seen() == "[None, None, None]"
        assert seen() == "['new', 'new', 'new']"
    assert seen() == BEFORE
