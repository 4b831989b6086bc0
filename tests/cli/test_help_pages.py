"""What `--help` shows for every command."""

from __future__ import annotations

from importlib import import_module

import pytest

from stillhouse import cli
from stillhouse.pipeline.steps.registry import steps

COMMANDS = [[name] for name in steps()]
for name, (_, place) in cli.COMMANDS.items():
    COMMANDS += [[name, action] for action in getattr(import_module(place), "ACTIONS", {})] or [[name]]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """argparse reads a `%` in a help text as a format, and fails only when it makes the page."""
    assert cli.main([*words, "--help"]) == 0
    assert f"usage: stillhouse {' '.join(words)}" in capsys.readouterr().out
