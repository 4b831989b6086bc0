"""Qrels as lines of text: three columns (query, passage, score) or TREC's four, between tabs or spaces."""

from collections.abc import Iterator
from pathlib import Path

from stillhouse.corpus.sources.lines import read_lines
from stillhouse.corpus.sources.rows import CONTENT_LENGTH, Qrel, Rejected
from stillhouse.corpus.sources.table_columns import COLUMNS

Form = tuple[int, int, int]
"""The places of query, passage and score in a line."""
FORMS: dict[int, Form] = {3: (0, 1, 2), 4: (0, 2, 3)}
"""The form of a line by its number of columns; the second of TREC's four is not used."""
NOT_COLUMNS = "not three columns (query-id, corpus-id, score) or TREC's four (query, 0, passage, relevance)"


def read_qrels(path: Path, name: str, split: str) -> Iterator[Qrel | Rejected]:
    """The rows of a qrels file, all in the form of the first. A first line of names says the order of the columns."""
    width, form, begun = 0, FORMS[3], False
    for line in read_lines(path, name):
        if isinstance(line, Rejected):
            yield line
            continue
        number, text = line
        cells = _cells(text)
        header, begun = None if begun else _header(cells), True
        if header:
            width, form = len(cells), header
            continue
        if not width and len(cells) in FORMS:
            width, form = len(cells), FORMS[len(cells)]
        where = f"{name}:{number}"
        if width and len(cells) == width:
            query, passage, score = (cells[place] for place in form)
            yield Qrel(query, passage, score, split, where)
        else:
            reason = f"not as many columns as the first row ({width})" if width else NOT_COLUMNS
            yield Rejected("qrel", cells[0] if cells else "", reason, where, text[:CONTENT_LENGTH])


def is_plain(path: Path) -> bool:
    """Whether the first line is a row of qrels, without the names of columns."""
    line = next((line for line in read_lines(path, path.name) if not isinstance(line, Rejected)), (0, ""))
    cells = _cells(line[1])
    return len(cells) in FORMS and cells[-1].strip().lstrip("+-").replace(".", "", 1).isdecimal()


def _cells(text: str) -> list[str]:
    # An empty cell of three counts; a tool that aligns its columns puts any white space between TREC's four.
    cells = text.split("\t")
    if len(cells) == 4 and not cells[3]:
        cells.pop()
    return cells if len(cells) in FORMS else text.split()


def _header(cells: list[str]) -> Form | None:
    """The places of the columns that a first line names, or None if it is a row."""
    lower = [cell.strip().lower() for cell in cells]
    places = [[lower.index(name) for name in names if name in lower] for names in _NAMES]
    query, passage, score = (found[0] if found else -1 for found in places)
    return (query, passage, score) if min(query, passage, score) >= 0 else None


_NAMES = tuple(COLUMNS["qrels"][column] for column in ("query", "passage", "relevance"))
