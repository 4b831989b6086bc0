"""Prose in Markdown has lines of at most 100 characters (docs/style.md); tables and code may be wider."""

from __future__ import annotations

import subprocess
from pathlib import Path

from stillhouse.filled_markdown import WIDTH, filled

ROOT = Path(__file__).resolve().parent.parent
CORPUS = "stillhouse/sample/articles/"


def test_no_line_of_prose_is_wide() -> None:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.split("\n") if name and not name.startswith(CORPUS)]
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
