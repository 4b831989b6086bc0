"""Results pages, and the measured figures that a stopped benchmark goes on from.

A page has the figures that a benchmark measured and then the notes that a person wrote in `<name>.notes.md`.
"""

from __future__ import annotations

import json
import re
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.command import HERE
from benchmarks.filled_markdown import filled
from stillhouse.core.artifacts import write_whole


def write_page(page: Path, lines: Sequence[str]) -> None:
    """Writes a page's lines and then the notes beside it, if there are any."""
    notes = page.with_suffix(".notes.md")
    written = ["", notes.read_text(encoding="utf-8").strip()] if notes.is_file() else []
    page.write_text(filled("\n".join([*lines, *written]).rstrip() + "\n"), encoding="utf-8")
    print(f"wrote {page}")


def write_as_measured(report: Callable[[Path, Namespace], Iterable[str]], arguments: Namespace) -> None:
    """Writes the lines of what `report` measures in an empty folder to `arguments.page`; after an error, those before.

    The folder is removed."""
    made: list[str] = []
    try:
        with TemporaryDirectory() as folder:
            made.extend(report(Path(folder), arguments))
    finally:
        if made:
            write_page(arguments.page, made)


def from_template(name: str, **values: object) -> list[str]:
    """The lines of `name.template` with these values in its places, each paragraph as one line."""
    text = (HERE / f"{name}.template").read_text(encoding="utf-8").format(**values)
    return re.sub(r"(?<!\n)\n(?=[^\s|#`-])", " ", text.strip()).splitlines()


def section(page: Path, title: str) -> list[str]:
    """The lines of a page as a section of another, its own headings one level lower."""
    _, *text = page.read_text(encoding="utf-8").strip().splitlines()
    return ["", f"## {title}", *(f"#{line}" if line.startswith("#") else line for line in text)]


def kept_beside(page: Path) -> Path:
    """The file with the figures of a page."""
    return page.with_suffix(".measured.json")


def read_kept(path: Path) -> dict[str, Any]:
    """What `write_kept` wrote; empty before the first time."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def write_kept(path: Path, found: Mapping[str, Any]) -> None:
    """Writes the file, whole or not at all, on several lines, so that a change shows as few."""
    text = json.dumps(found, sort_keys=True)
    write_whole(path, text.replace('], "', '],\n"').replace('}, "', '},\n"') + "\n")
