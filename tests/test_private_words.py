"""Private words that nobody would search for do not appear in the project (docs/style.md)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PRIVATE = {
    r"\btold\b(?! (apart|from))|told_|_told|\btell_": "report, log, show, give",
    r"\bLesson\b": "training",
    r"\bsurroundings\b": "context, environment",
    r"\bso many\b(?! as)": "this many, at most N",
    r"\bthat is none\b": "an invalid …",
    r"(?<![\w.,:/+-])00[1-4]\b(?![.,]\d)|\(000\)": "SimLM, BoW, CDMAE or Chang et al. (2020)",
    r"\bheldout_every\b|\bskip_best\b": "eval_steps, range_min",
}
"""Private words, and what the field says instead."""
ENDINGS = (".py", ".md", ".html", ".yaml", ".cff", ".ipynb", ".toml", "Makefile")
ELSEWHERE = (
    "CHANGELOG.md",
    "docs/style.md",
    "stillhouse/sample/",  # articles and questions
    "stillhouse/former_names.py",
    "tests/corpus/test_markdown_tree.py",
    "tests/test_former_names.py",
    "tests/test_private_words.py",
)


@pytest.mark.parametrize("words", PRIVATE)
def test_private_words_are_gone(words: str) -> None:
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    found = []
    for name in names:
        if not name.endswith(
            (".py", ".md", ".html", ".yaml", ".cff", ".ipynb", ".toml", "Makefile")
        ) or name.startswith(ELSEWHERE):
            continue
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), start=1):
            if re.search(words, line):
                found.append(f"{name}:{number}: {line.strip()[:100]}")
    assert not found, f"write {PRIVATE[words]}:\n" + "\n".join(found)
