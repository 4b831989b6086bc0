"""A results page has the figures that a script measured and then the notes that a person wrote in `<name>.notes.md`."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from stillhouse.filled_markdown import filled


def write_page(page: Path, lines: Sequence[str]) -> None:
    """Writes a page's lines and then the notes beside it, if there are any."""
    notes = page.with_suffix(".notes.md")
    written = ["", notes.read_text(encoding="utf-8").strip()] if notes.is_file() else []
    page.write_text(filled("\n".join([*lines, *written]).rstrip() + "\n"), encoding="utf-8")
    print(f"wrote {page}")


def command_lines(words: Iterable[str], width: int = 100) -> list[str]:
    """A command as lines of at most `width` characters, unless a word is longer: each but the last ends with a
    backslash, so that a shell reads the same words."""
    lines = [""]
    for word in map(shlex.quote, words):
        if lines[-1] and len(f"{lines[-1]} {word} \\") > width:
            lines[-1] += " \\"
            lines.append(f"    {word}")
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return lines
