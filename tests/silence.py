"""Makes work take longer than a log may be silent, within a test's patience."""

from __future__ import annotations

import time
from typing import Any

import pytest

from stillhouse.core.context import QUIET
from stillhouse.core.monitoring import activity

SOON = 0.1
"""Seconds of silence after which a line must appear."""


def talk_soon(patch: pytest.MonkeyPatch) -> None:
    """Write log lines, and one after each `SOON` seconds of silence."""
    patch.delenv(QUIET)
    patch.setattr(activity, "SILENCE", SOON)


def slow(place: object, name: str, patch: pytest.MonkeyPatch) -> None:
    """Make a function of a module or class wait before it works."""
    function = getattr(place, name)

    def waits(*words: Any, **named: Any) -> Any:
        time.sleep(4 * SOON)
        return function(*words, **named)

    patch.setattr(place, name, waits)
