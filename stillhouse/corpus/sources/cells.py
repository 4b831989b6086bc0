"""The rows of comma-separated files, where cells may be quoted, and of tab-separated files, where quotes are rare.

Commas are common in text, so comma-separated files quote cells that contain one, as RFC 4180 says. Tabs are rare: some
writers of tab-separated files quote nothing (MS MARCO), so that a cell may begin with a literal quote, and others quote
as usual (DPR). So a tab-separated line is read as quoted if its quotes are balanced, and literally otherwise.
"""

import csv
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import cast

from stillhouse.corpus.sources.lines import Fields, placed, read_lines
from stillhouse.corpus.sources.rows import CONTENT_LENGTH, Rejected
from stillhouse.corpus.sources.spans import WHOLE, Span

TAB = "\t"
DELIMITERS = {",": "commas", ";": "semicolons", TAB: "tabs", "|": "bars"}
"""The possible delimiters of cells, with their names."""
LONGEST = 1 << 26
"""The most characters of a cell; Python's own limit is 131,072."""
LONGEST_CELL = 200
"""The most lines of a quoted tab-separated cell; beyond it, the quote counts as literal."""
Line = tuple[int, str]
Cells = tuple[int, list[str]]


def read_cells(path: Path, name: str, delimiter: str, span: Span = WHOLE) -> Iterator[Cells | Rejected]:
    """The rows of a delimited file, as (number of the last line, cells), without blank rows. `span` needs tabs.

    A quoted cell may contain line breaks. In a comma-separated file, a row that breaks the rules of quoting becomes a
    `Rejected`. In a tab-separated file, such a row is split at its tabs and keeps its quotes; so is a row in which a
    quoted cell would contain both a tab and a line break.
    """
    assert delimiter == TAB or span == WHOLE, "a quoted cell may hold any line"
    yield from _read_tab_separated(path, name, span) if delimiter == TAB else _read_quoted(path, name, delimiter)


def header_of(path: Path, name: str, delimiter: str) -> list[str]:
    """The first row of a delimited file; [] if no row can be read."""
    rows = read_cells(path, name, delimiter)
    return [name.strip() for name in next((row[1] for row in rows if not isinstance(row, Rejected)), [])]


def read_named_cells(
    path: Path, name: str, delimiter: str, kind: str, span: Span = WHOLE
) -> Iterator[Fields | Rejected]:
    """The rows of a delimited file below its header, by its names; one of another width is rejected as a `kind`."""
    header, below = header_of(path, name, delimiter), not span.is_first
    for row in read_cells(path, name, delimiter, span):
        if isinstance(row, Rejected):
            yield row
        elif below:
            number, cells = row
            where, content = f"{name}:{number}", str(cells)[:CONTENT_LENGTH]
            if len(cells) == len(header):
                yield placed(dict(zip(header, cells)), where, content)
            else:
                reason = f"not as many columns as the first row ({len(header)})"
                yield Rejected(kind, cells[0], reason, where, content)
        else:
            below = True


def by_form(
    rows: Iterable[Cells | Rejected], name: str, kind: str, *forms: tuple[str, ...], heads: Collection[str] = ()
) -> Iterator[Fields | Rejected]:
    """Rows by the names of the form with as many columns; others are rejected as a `kind`.

    A first row that begins with one of `heads` is a header, which is left out.
    """
    of_width, known = {len(form): form for form in forms}, " or ".join(map(", ".join, forms))
    for row in rows:
        if isinstance(row, Rejected):
            yield row
            continue
        number, cells = row
        is_header, heads = cells[0] in heads, ()
        if is_header:
            continue
        where, content = f"{name}:{number}", TAB.join(cells)[:CONTENT_LENGTH]
        if form := of_width.get(len(cells)):
            yield placed(dict(zip(form, cells)), where, content)
        else:
            yield Rejected(kind, cells[0], f"columns are not {known}", where, content)


def is_row_by_itself(line: bytes) -> bool:
    """Whether a line of a tab-separated file is a row whatever precedes it, so that the file may be divided there."""
    return b"\t" in line and b'"' not in line


def _read_quoted(path: Path, name: str, delimiter: str) -> Iterator[Cells | Rejected]:
    below = iter(read_lines(path, name, blank=True))
    again, of_row = deque[Line | Rejected](), list[Line | Rejected]()

    def lines() -> Iterator[str]:
        while line := again.popleft() if again else next(below, None):
            of_row.append(line)
            if not isinstance(line, Rejected):
                yield line[1] + "\n"

    rows = _reader(lines(), delimiter, strict=True)
    while True:
        of_row.clear()
        fault, cells = "", None
        try:
            cells = next(rows, None)
        except csv.Error as error:
            fault = f"not a row ({error})"
        while of_row and isinstance(before := of_row[0], Rejected):
            yield before
            del of_row[0]
        if not of_row:
            return
        number, content = cast(Line, of_row[0])
        unreadable = [line for line in of_row if isinstance(line, Rejected)]
        if fault:
            # A quote without an end takes the rows below into its cell: they are read again without this line.
            yield Rejected("line", "", fault, f"{name}:{number}", content[:CONTENT_LENGTH])
            again.extendleft(reversed(of_row[1:]))
            rows = _reader(lines(), delimiter, strict=True)
        elif unreadable:
            yield from unreadable
            yield Rejected(
                "line", "", "a line of the row cannot be read", f"{name}:{number}", str(cells)[:CONTENT_LENGTH]
            )
        elif cells:
            yield cast(Line, of_row[-1])[0], cells


def _reader(lines: Iterable[str], delimiter: str, *, strict: bool) -> Iterator[list[str]]:
    csv.field_size_limit(LONGEST)
    return csv.reader(lines, delimiter=delimiter, strict=strict)


def _read_tab_separated(path: Path, name: str, span: Span) -> Iterator[Cells | Rejected]:
    unread: list[Line] = []
    for line in read_lines(path, name, blank=True, span=span):
        if isinstance(line, Rejected):
            yield from _as_they_stand(unread)
            yield line
        elif unread or '"' in line[1]:
            yield from _add(unread, line)
        elif line[1]:
            yield line[0], line[1].split(TAB)
    yield from _as_they_stand(unread)


def _add(unread: list[Line], line: Line) -> Iterator[Cells]:
    """Adds a line; `unread` then holds the lines whose last cell may continue in the next line."""
    unread.append(line)
    cells, is_open = _quoted_row(unread)
    if is_open:
        return
    if cells is None:
        yield from _first_as_it_stands(unread)
        return
    unread.clear()
    if cells:
        yield line[0], cells


def _first_as_it_stands(unread: list[Line]) -> Iterator[Cells]:
    (number, text), *others = unread
    unread.clear()
    if text:
        yield number, text.split(TAB)
    for line in others:
        yield from _add(unread, line)


def _as_they_stand(unread: list[Line]) -> Iterator[Cells]:
    """The remaining lines, when a cell that seemed open has no end."""
    while unread:
        yield from _first_as_it_stands(unread)


def _quoted_row(lines: list[Line]) -> tuple[list[str] | None, bool]:
    """The row that the lines make as a quoted row, or None, and whether it may continue in the next line."""
    is_short = len(lines) < LONGEST_CELL
    if len(lines) > 1 and '"' not in lines[-1][1]:
        return None, is_short and TAB not in lines[-1][1]
    texts = [text + "\n" for _, text in lines]
    try:
        rows, is_open = list(_reader(texts, TAB, strict=True)), False
    except csv.Error as error:
        if "end of data" not in str(error):
            return None, False
        rows, is_open = list(_reader(texts, TAB, strict=False)), True
    cells = rows[0] if len(rows) == 1 else []
    if any("\n" in cell and TAB in cell for cell in cells):
        return None, False
    return (None, is_short) if is_open else (cells, False)
