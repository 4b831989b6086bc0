"""Divides a file of lines into spans that several processes read, and keeps the line numbers of the file."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import BinaryIO

from stillhouse.corpus.sources.rows import Each

_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Span:
    """The lines that begin at or after byte `begin` and before `end`; `line` is the number of the first one."""

    begin: int = 0
    end: float = math.inf
    line: int = 1

    @property
    def is_first(self) -> bool:
        """Whether the span begins the file, and so contains the file's header."""
        return self.begin == 0


WHOLE = Span()


def divide(path: Path, size: int, each: Each, may_begin: Callable[[bytes], bool] = bool) -> list[Span]:
    """Consecutive spans of about `size` bytes. Each except the first begins with a line that `may_begin` accepts.

    The first span contains the first line of text, which may be a header. A compressed file is one span, and so is a
    file without such a line.
    """
    total = path.stat().st_size
    if path.suffix == ".gz" or total <= size:
        return [WHOLE]
    edges = list[int]()
    with path.open("rb") as file:
        place = max(_first_text(file), size)
        while (place := _begin(file, place, may_begin)) < total:
            edges.append(place)
            place += size
    stretches = list(pairwise([0, *edges, total]))
    lines = accumulate(each(partial(_line_ends, path), stretches[:-1]), initial=1)
    ends = [*edges, math.inf]
    return [Span(begin, end, line) for (begin, _), end, line in zip(stretches, ends, lines)]


def _first_text(file: BinaryIO) -> int:
    """The end of the first line that is UTF-8 and not blank, or of the file."""
    for raw in iter(file.readline, b""):
        with suppress(UnicodeDecodeError):
            if raw.decode("utf-8-sig").strip():
                break
    return file.tell()


def _begin(file: BinaryIO, place: int, may_begin: Callable[[bytes], bool]) -> int:
    """The start of the first line at or after a place that may begin a span; the file's end if there is none."""
    file.seek(place - 1)
    if file.read(1) != b"\n":
        file.readline()
    for raw in iter(file.readline, b""):
        if may_begin(raw):
            return file.tell() - len(raw)
    return file.tell()


def _line_ends(path: Path, stretch: tuple[int, int]) -> int:
    begin, end = stretch
    count = 0
    with path.open("rb") as file:
        file.seek(begin)
        while begin < end and (block := file.read(min(_AT_ONCE, end - begin))):
            begin += len(block)
            count += block.count(b"\n")
    return count
