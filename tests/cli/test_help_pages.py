"""What `--help` shows for every command."""

from __future__ import annotations

import pytest
from writing_commands import parsers


def test_every_command_explains_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """argparse reads a `%` in a help text as a format, and fails only when it makes the page."""
    pages = {command: parser.format_help() for command, parser in parsers(monkeypatch).items()}
    assert len(pages) > 30 and all("usage: stillhouse" in page for page in pages.values())
