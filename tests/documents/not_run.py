"""The documented commands that no test types: how each begins, why, and what checks it instead."""

from __future__ import annotations

from pathlib import Path

import yaml
from documented_commands import Command

NOT_RUN: dict[str, tuple[str, str]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
EXACTLY = [start for start, (reason, _) in NOT_RUN.items() if reason == "begins a command"]
"""Entries that match only the whole text."""


def why_not(command: Command) -> str:
    """Return the entry of the table for a command, or an empty text if a test types it."""
    text = command.text
    return next((start for start in NOT_RUN if text == start or (start not in EXACTLY and text.startswith(start))), "")


def runs(command: Command) -> bool:
    """Whether a test types the command."""
    return not command.only_named and not why_not(command)
