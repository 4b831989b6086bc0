"""The commands that README and docs show, in code blocks and in the text around them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    *(f"{page.relative_to(ROOT)}" for page in sorted((ROOT / "docs").rglob("*.md"))),
]
PROGRAMS = {"stillhouse", "kubectl", "make", "dvc", "git", "curl", "python", "pip", "pytest", "torchrun", "printf"}
PROGRAMS |= {".", "cd", "export", "rm", "kfp", "kustomize"}
SHELLS = {"sh", "bash", "console"}
VARIABLE = re.compile(r"[A-Z_]+=")
GROUPS = "pipeline|queries|release|schedule"
"""Commands of Stillhouse that have named actions."""
NAMED = re.compile(rf"stillhouse (({GROUPS}) )?[a-z][a-z-]*|(dvc|git)( [a-z][a-z-]*)+|make [a-z][a-z-]*")
INLINE = re.compile(r"`([^`]+)`")
HEADING = re.compile(r"#+ (.*)")


@dataclass(frozen=True)
class Command:
    """A command of a page, with continued lines joined. An `inline` command is within the text."""

    page: str
    heading: str
    line: int
    text: str
    inline: bool

    @property
    def only_named(self) -> bool:
        """Whether the text only names a command, like `dvc repro`, without arguments."""
        return self.inline and NAMED.fullmatch(self.text) is not None

    @property
    def program(self) -> str:
        return program_of(self.text)

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def program_of(text: str) -> str:
    """Return the program that a line starts, without variables and folder; empty if it is not a command."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        return ""
    rest = [word for word in words if not VARIABLE.match(word)]
    name = rest[0].removeprefix(".venv/bin/") if rest else ""
    return name if name in PROGRAMS else ""


@cache
def commands_of(page: str) -> tuple[Command, ...]:
    """Return the commands of a page, in order."""
    return tuple(_read(page, (ROOT / page).read_text(encoding="utf-8").splitlines()))


def _read(page: str, lines: list[str]) -> Iterator[Command]:
    language, fenced = "", False
    headings: list[str] = [""]
    plain: list[str] = []
    block: list[tuple[int, str]] = []
    found: list[Command] = []
    for number, line in enumerate(lines, start=1):
        fence = line.lstrip().startswith("```")
        if fence:
            fenced, language = not fenced, line.strip().strip("`")
        named = None if fence or fenced else HEADING.match(line)
        headings.append(named[1] if named else headings[-1])
        code = not fence and (fenced or line.startswith("    ")) and (not fenced or language in SHELLS)
        plain.append("" if code or fence or fenced else line)
        if not code:
            continue
        block.append((number, line))
        if line.endswith("\\"):
            continue
        start, text = block[0][0], " ".join(part.rstrip("\\").strip() for _, part in block).removeprefix("$ ")
        block = []
        if text and not text.startswith("#") and (fenced or program_of(text)):
            found.append(Command(page, headings[start], start, text, inline=False))
    whole = "\n".join(plain)
    for match in INLINE.finditer(whole):
        text, start = " ".join(match[1].split()), whole.count("\n", 0, match.start()) + 1
        if program_of(text) and len(text.split()) > 1:
            found.append(Command(page, headings[start], start, text, inline=True))
    yield from sorted(found, key=lambda one: one.line)


def every_command() -> list[Command]:
    return [command for page in PAGES for command in commands_of(page)]


def section(page: str, heading: str, *, having: str = "", without: str = "\n") -> tuple[Command, ...]:
    """Return the commands below a heading that contain `having` and not `without`. There must be at least one."""
    below = [command for command in commands_of(page) if command.heading == heading]
    found = tuple(command for command in below if having in command.text and without not in command.text)
    assert found, f"{page} has no such commands below {heading!r}"
    return found


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a language in a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
