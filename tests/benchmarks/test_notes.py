"""Commands on the pages of the benchmarks."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest


def test_a_long_command_is_continued_without_changing_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    from notes import command_lines

    words = [
        "stillhouse",
        "zero-shot",
        *(f"data/corpus-{number}" for number in range(12)),
        "--measures",
        "nDCG@10 R@1k",
    ]
    lines = command_lines(words)
    assert len(lines) > 1 and max(map(len, lines)) <= 100
    assert all(line.endswith(" \\") for line in lines[:-1]) and not lines[-1].endswith("\\")
    assert shlex.split("\n".join(lines).replace("\\\n", "")) == words
    assert command_lines(["ls", "a b"]) == ["ls 'a b'"]
