"""Prose in Markdown has lines of at most 100 characters, and tables fit a screen (docs/style.md); code may be wider."""

from __future__ import annotations

import subprocess
from pathlib import Path

from stillhouse.filled_markdown import WIDTH, filled

ROOT = Path(__file__).resolve().parent.parent
CORPUS = "stillhouse/sample/articles/"
LONG_TABLES = ("docs/reference/", "stillhouse/components/")
"""Folders of reference pages, which may have long tables."""
ROW = 220
"""Characters of the longest row of a table elsewhere: it takes two or three lines of a screen."""


def pages() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\n") if name and not name.startswith(CORPUS)]


def test_tables_fit_a_screen() -> None:
    wide = []
    for name in pages():
        rows = [line for line in (ROOT / name).read_text(encoding="utf-8").split("\n") if line.startswith("|")]
        if not name.startswith(LONG_TABLES) and any(len(row) > ROW for row in rows):
            wide.append(name)
    assert not wide, f"a table of these has a row of more than {ROW} characters: {', '.join(wide)}"


def test_no_line_of_prose_is_wide() -> None:
    names = pages()
    assert len(names) > 50
    wide = []
    for name in names:
        text = (ROOT / name).read_text(encoding="utf-8")
        if filled(text) != text:
            wide.append(name)
    assert not wide, f"a line of these has more than {WIDTH} characters: {', '.join(wide)}"


def test_filling_keeps_the_content() -> None:
    prose = "A word and another. " * 12
    text = f"# {'Heading ' * 20}\n\n- {prose}\n  it goes on - 3. and on\n- short\n\n{prose}\n\n    {prose}\n\n"
    text += f"| {prose} |\n```\n{prose}\n```"
    made = filled(text)
    assert " ".join(made.split()) == " ".join(text.split()) and filled(made) == made
    kept = {line for line in made.split("\n") if len(line) > WIDTH}
    assert kept == {f"# {'Heading ' * 20}", f"    {prose}", f"| {prose} |", prose}
    assert [line for line in made.split("\n") if line.startswith("- ")][1:] == ["- short"]
