"""A results page has the figures that a script measured and then the notes that a person wrote in `<name>.notes.md`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stillhouse.filled_markdown import filled


def write_page(page: Path, lines: Sequence[str]) -> None:
    """Writes a page's lines and then the notes beside it, if there are any."""
    notes = page.with_suffix(".notes.md")
    written = ["", notes.read_text(encoding="utf-8").strip()] if notes.is_file() else []
    page.write_text(filled("\n".join([*lines, *written]).rstrip() + "\n"), encoding="utf-8")
    print(f"wrote {page}")
