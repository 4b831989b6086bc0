"""The command line accepts every `stillhouse` command in README and docs, flag by flag."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from stillhouse import cli
from stillhouse.pipeline.parser import Parser

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LEADS = re.compile(r"^\s*(?:[A-Z_]+=\S+ |\.venv/bin/)*stillhouse ")
ENDS = {"<", ">", "|", "&", "&&", "||", ";"}


def commands() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each command of a code block, as page:line and its words."""
    for page in PAGES:
        lines = page.read_text(encoding="utf-8").splitlines()
        fenced = False
        for number, line in enumerate(lines):
            fenced ^= line.lstrip().startswith("```")
            if not (fenced or line.startswith("    ")) or not re.search(r"\bstillhouse [a-z-]", line):
                continue
            while line.endswith("\\"):
                number += 1
                line = line[:-1] + lines[number]
            for part in line.split("&&"):
                if LEADS.match(part):
                    words = shlex.split(part[part.index("stillhouse ") :], comments=True)[1:]
                    end = next((place for place, word in enumerate(words) if word in ENDS), len(words))
                    yield f"{page.relative_to(ROOT)}:{number + 1}", tuple(words[:end])


COMMANDS = sorted(set(commands()))


class Parsed(BaseException):
    """Raised instead of running a command, once its words are parsed."""


@pytest.mark.parametrize(("place", "words"), COMMANDS, ids=[place for place, _ in COMMANDS])
def test_documented_commands_parse(place: str, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    real = Parser.parse

    def parse(self: Parser, argv: Sequence[str]) -> Any:
        real(self, argv)
        raise Parsed

    monkeypatch.setattr(Parser, "parse", parse)
    if "--help" in words:
        assert cli.main(words) == 0
        return
    with pytest.raises(Parsed):
        assert cli.main(words) == 0
