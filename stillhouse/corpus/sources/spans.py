"""Divides a file of lines into spans that several processes read, and keeps the line numbers of the file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
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
    with path.open("rb") as file:
        first, edges = _first_text(file), list[int]()
        place = max(first, size)
        while first and (place := _begin(file, place, may_begin)) < total:
            edges.append(place)
            place += size
    if not edges:
        return [WHOLE]
    stretches = list(pairwise([0, *edges, total]))
    lines = accumulate(each(partial(_line_ends, path), stretches[:-1]), initial=1)
    ends = [*edges, math.inf]
    return [Span(begin, end, line) for (begin, _), end, line in zip(stretches, ends, lines)]


def _first_text(file: BinaryIO) -> int:
    """The end of the first line that is UTF-8 and not blank; 0 if there is none."""
    while raw := file.readline(_AT_ONCE):
        if raw.endswith(b"\n") and not raw.removeprefix(b"\xef\xbb\xbf").isspace() and _is_text(raw):
            return file.tell()
        _end_line(file, raw)
    return 0


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _begin(file: BinaryIO, place: int, may_begin: Callable[[bytes], bool]) -> int:
    """The start of the first line at or after a place that may begin a span; the file's end if there is none."""
    file.seek(place - 1)
    _end_line(file, file.read(1))
    for raw in iter(partial(file.readline, _AT_ONCE), b""):
        if raw.endswith(b"\n") and may_begin(raw):
            return file.tell() - len(raw)
        _end_line(file, raw)
    return file.tell()


def _end_line(file: BinaryIO, raw: bytes) -> None:
    while raw and not raw.endswith(b"\n"):
        raw = file.readline(_AT_ONCE)


def _line_ends(path: Path, stretch: tuple[int, int]) -> int:
    return sum(block.count(b"\n") for block in _blocks(path, *stretch))


def _blocks(path: Path, begin: int, end: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(begin)
        while begin < end and (block := file.read(min(_AT_ONCE, end - begin))):
            begin += len(block)
            yield block
