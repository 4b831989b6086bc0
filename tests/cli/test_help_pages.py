"""What `--help` of every command shows."""

from __future__ import annotations

import pytest
from writing_commands import parsers


def test_no_heading_stands_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    for command, parser in parsers(monkeypatch).items():
        headings = [group.title for group in parser._action_groups if group._group_actions]
        assert len(headings) == len(set(headings)), command
