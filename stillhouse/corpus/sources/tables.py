"""Tables: Parquet, CSV, TSV and JSON files of passages, queries, qrels and more, such as a `corpus/` folder."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from stillhouse.core.errors import InputError
from stillhouse.corpus.answers import TEXT
from stillhouse.corpus.fields import given_fields
from stillhouse.corpus.schemas import ADDED, GENERATED, SPLITS
from stillhouse.corpus.settings import TASKS
from stillhouse.corpus.sources.cells import DELIMITERS, TAB, header_of, is_row_by_itself, read_named_cells
from stillhouse.corpus.sources.json_files import holds_list, read_rows
from stillhouse.corpus.sources.lines import (
    Fields,
    IllTyped,
    identifier,
    identifier_or_digest,
    made_of,
    placed,
    text_field,
    together,
)
from stillhouse.corpus.sources.options import Options
from stillhouse.corpus.sources.parquet_rows import open_parquet, plain_passages, read_batches
from stillhouse.corpus.sources.qrels_lines import is_plain, read_qrels
from stillhouse.corpus.sources.rows import (
    CONTENT_LENGTH,
    NOT_PROSE,
    Answer,
    Each,
    LeftOut,
    Link,
    NotProse,
    Part,
    Passage,
    Qrel,
    Query,
    Rejected,
    Row,
    Source,
    split_in,
)
from stillhouse.corpus.sources.spans import WHOLE, Span, divide
from stillhouse.corpus.sources.table_columns import (
    FIELD,
    NAMES,
    SUFFIXES,
    TableOfFile,
    fields_beside,
    find_columns,
    find_tables,
    named_columns,
    names_of,
    suffix_of,
    with_fields,
)

TABLES = "tables"
MADE = (*TASKS, GENERATED, ADDED)
"""The origins of queries that Stillhouse made or added; a user's own table may have a column `origin` too."""
_EXPECTED = {".csv": ",", ".tsv": "\t"}
PLAIN = " "
"""Stands for the delimiter of qrels without names of columns."""

_POSITION = re.compile(r"\s*([0-9]{1,9})(\.0*)?\s*")
"""Some tables write a whole number as 1.0."""

_IDS_SHOWN = ("id", "query", "source")
"""The columns to identify a rejected row by; it shows the first that exists."""


def open_tables(location: Path, options: Options) -> Source:
    """A folder of tables named as in `NAMES`, each a file, `<name>.<split>` files or a folder of files; or one file of
    passages.

    Qrels have their split in a column or in the file's name. Queries that were made from a corpus (their `origin` is in
    `MADE`) are left out, since they can be made again.
    """
    chosen = named_columns(options.columns or {})
    chosen |= {("passages", FIELD + name): name for name in options.fields}
    if location.is_file():
        if suffix_of(location) is None:
            raise InputError(f"{location} is not a table; its name must end in one of {', '.join(SUFFIXES)}")
        files = [TableOfFile("passages", location.name, location, "")]
    else:
        files = find_tables(location)
    if not any(file.table == "passages" for file in files):
        wanted = f"{' or '.join(NAMES['passages'])} with one of {', '.join(SUFFIXES)}"
        raise InputError(f"{location} has no table of passages: no {wanted}")
    tables = {file.table for file in files}
    if tables & {"qrels", "answers"} and "queries" not in tables:
        raise InputError(f"{location} has qrels or answers but no table of queries; add one")
    unused = sorted({table for table, _ in chosen} - tables)
    if unused:
        raise InputError(f"columns: {location} has no table {unused[0]}; leave out its columns")

    files = list(_prepared(files, chosen))
    passages = [file for file in files if file.table == "passages"]
    others = [file for file in files if file.table != "passages"]

    def parts(size: int, each: Each) -> list[Part]:
        stretches = [(file, stretch) for file in passages for stretch in _stretches(file, size, each)]
        return [*(Part(partial(_read_passages, *one)) for one in stretches), Part(partial(_read_files, others))]

    read = {file.name: file.path for file in files} | {path.name: path for path in fields_beside(passages[0].path)}
    notes = [
        f"{file.name} has {DELIMITERS[file.delimiter]} between its cells"
        for file in files
        if file.delimiter not in ("", PLAIN, _expected(file))
    ]
    return Source(TABLES, read, parts, notes=tuple(notes), cells=any(file.delimiter for file in passages))


Stretch = Span | range
"""A part of a file: its lines, or its row groups. `WHOLE` is all of any file."""


def _stretches(file: TableOfFile, size: int, each: Each) -> Sequence[Stretch]:
    """The parts of a file of passages."""
    if _is_json(file):
        return [WHOLE] if holds_list(file.path) else divide(file.path, size, each)
    if file.delimiter:
        return divide(file.path, size, each, is_row_by_itself) if file.delimiter == TAB else [WHOLE]
    try:
        with open_parquet(file.path) as opened:
            of_group = [opened.metadata.row_group(group).total_byte_size for group in range(opened.num_row_groups)]
    except (pa.ArrowException, OSError, ValueError, LookupError):
        return [WHOLE]  # reading it will report the damage
    stretches = [range(some[0], some[-1] + 1) for some in together(range(len(of_group)), of_group.__getitem__, size)]
    return stretches if len(stretches) > 1 else [WHOLE]


def _read_passages(file: TableOfFile, stretch: Stretch) -> Iterator[Row]:
    """The rows of a part of a file of passages, which depend on no other file."""
    return _rows(file, _read(file, stretch), set())


def read_tables(files: Iterable[TableOfFile]) -> Iterator[Row]:
    """The rows of some files of tables, with the usual names of columns."""
    return _read_files(_prepared(files, {}))


def _read_files(files: Iterable[TableOfFile]) -> Iterator[Row]:
    made: set[str] = set()
    for file in files:
        if file.delimiter == PLAIN:
            yield from read_qrels(file.path, file.name, file.split)
        else:
            yield from _rows(file, _read(file), made)


def _read(file: TableOfFile, stretch: Stretch = WHOLE) -> Iterator[Fields | Passage | Rejected]:
    if isinstance(stretch, range) or not (file.delimiter or _is_json(file)):
        return _read_parquet(file, stretch if isinstance(stretch, range) else None)
    return _read_cells(file, stretch) if file.delimiter else _read_json(file, stretch)


def _read_cells(file: TableOfFile, span: Span) -> Iterator[Fields | Rejected]:
    names = find_columns(file, header_of(file.path, file.name, file.delimiter))
    for row in read_named_cells(file.path, file.name, file.delimiter, _kind(file), span):
        if isinstance(row, Rejected):
            yield row
        else:
            yield placed({column: row[name] for column, name in names.items()}, row.where, row.text)


def _is_json(file: TableOfFile) -> bool:
    return ".json" in (suffix_of(file.path) or "")


def _read_json(file: TableOfFile, span: Span) -> Iterator[Fields | Rejected]:
    """The JSON objects of a file; each may name its columns in its own way."""
    columns = names_of(file)
    for fields in read_rows(file.path, file.name, span):
        if isinstance(fields, Rejected):
            yield fields
            continue
        named = {column: [name for name in names if name in fields] for column, names in columns.items()}
        values = {column: fields[names[0]] for column, names in named.items() if names}
        yield placed(values, fields.where, fields.text)


def _expected(file: TableOfFile) -> str:
    """The delimiter that the name of a CSV or TSV file implies."""
    return _EXPECTED.get((suffix_of(file.path) or "").removesuffix(".gz"), "")


def refuse_unnamed(files: Iterable[TableOfFile]) -> None:
    """Raises `InputError` unless every file of cells names its columns, divided as its suffix implies."""
    for file in _prepared(files, {}):
        if file.delimiter not in ("", PLAIN):
            find_columns(file, header_of(file.path, file.name, _expected(file)))


def _prepared(files: Iterable[TableOfFile], chosen: Mapping[tuple[str, str], str]) -> Iterator[TableOfFile]:
    """The files with their chosen columns and their delimiters."""
    for file in files:
        columns = {column: (name,) for (table, column), name in chosen.items() if table == file.table}
        file = replace(file, columns=columns)
        yield replace(file, delimiter=_delimiter_of(file)) if _expected(file) else file


def _delimiter_of(file: TableOfFile) -> str:
    """The delimiter of a CSV or TSV file: the one that its name implies, or else the one that yields its columns.

    Counting delimiters misleads, since texts contain commas, semicolons and bars too, but the names of columns are
    known. If no delimiter yields the required columns, it is the one that splits the first row into the most cells, so
    that the error can list them.
    """
    widest = 1, _expected(file)
    for delimiter in dict.fromkeys((_expected(file), *DELIMITERS)):
        header = header_of(file.path, file.name, delimiter)
        try:
            find_columns(file, header)
        except InputError:
            widest = max(widest, (len(header), delimiter), key=lambda each: each[0])
        else:
            return delimiter
    return PLAIN if file.table == "qrels" and file.split and is_plain(file.path) else widest[1]


def _read_parquet(file: TableOfFile, groups: range | None) -> Iterator[Fields | Passage | Rejected]:
    number = 0
    try:
        with open_parquet(file.path) as opened:
            sizes = [opened.metadata.row_group(group).num_rows for group in range(opened.num_row_groups)]
            number, end = sum(sizes[: groups.start if groups else 0]), sum(sizes[: groups.stop if groups else None])
            names = find_columns(file, opened.schema_arrow.names)
            lists = [name for column, name in names.items() if column.startswith(FIELD)]
            beside = [given_fields(path, number, opened.metadata.num_rows) for path in fields_beside(file.path)]
            for batch in read_batches(opened, file.path, dict.fromkeys(names.values()), groups, lists):
                columns = {column: batch.column(name) for column, name in names.items()}
                wheres = [f"{file.name}:{number + place}" for place in range(1, len(batch) + 1)]
                passages = plain_passages(columns, wheres) if file.table == "passages" else None
                rows: Iterable[Fields | Passage] = _fields_of(columns, wheres) if passages is None else passages
                yield from map(with_fields, rows, beside[0]) if beside else rows
                number += len(batch)
            if number != end:  # damage may end a column early without an error
                raise ValueError(f"it should have {opened.metadata.num_rows:,}")
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, LookupError) as error:
        raise InputError(f"{file.path} is damaged after row {number:,} ({error}); fetch the file again") from None


def _fields_of(columns: Mapping[str, pa.Array], wheres: list[str]) -> Iterator[Fields]:
    values = [column.to_pylist() for column in columns.values()]
    for where, *cells in zip(wheres, *values):
        row = dict(zip(columns, cells))
        yield placed(row, where, str(row)[:CONTENT_LENGTH])


def _kind(file: TableOfFile) -> str:
    return {"queries": "query", "unjudged": "query", "not_prose": "passage"}.get(file.table, file.table[:-1])


def _rows(file: TableOfFile, read: Iterable[Fields | Passage | Rejected], made: set[str]) -> Iterator[Row]:
    """The rows of a table. `made` collects the ids of queries that were made from a corpus."""
    return made_of(read, _kind(file), _IDS_SHOWN, partial(_row, file, made))


def _row(file: TableOfFile, made: set[str], fields: Fields) -> Iterator[Row]:
    kind, where = _kind(file), fields.where
    if file.table == "passages":
        title, text = optional(fields, "title"), text_field(fields, "text")
        id = identifier_or_digest(fields, ("id",), title, text)
        article = optional(fields, "article_id")
        # In a table without articles, each passage is its own article.
        article = article if "article_id" in fields else id
        kept = {name.removeprefix(FIELD): value for name, value in fields.items() if name.startswith(FIELD)}
        section, position = optional(fields, "section"), position_of(fields)
        yield Passage(id, title, text, article, section, position, where, kept or None)
    elif file.table == "not_prose":
        if (named := optional(fields, "kind")) not in NOT_PROSE:
            raise IllTyped(f"kind is not {' or '.join(NOT_PROSE)}")
        yield NotProse(identifier(fields, ("id",)), named, where)
    elif file.table == "links":
        yield Link(identifier(fields, ("source",)), identifier(fields, ("target",)), where)
    elif file.table in ("queries", "unjudged"):
        id, text = identifier(fields, ("id",)), text_field(fields, "text")
        if (origin := fields.get("origin")) in MADE:
            made.add(id)
            yield LeftOut(kind, f"made of its corpus ({origin})")
        else:
            yield Query(id, text, where)
    else:
        query, split = identifier(fields, ("query",)), _split(file, fields)
        if query in made:
            yield LeftOut(kind, "its query is made of its corpus")
        elif file.table == "qrels":
            passage = identifier(fields, ("passage",))
            yield Qrel(query, passage, str(fields.get("relevance", 1)), split, where)
        else:
            answer = text_field(fields, "answer")
            yield Answer(query, answer, optional(fields, "kind") or TEXT, split, where)


def optional(fields: Fields, name: str) -> str:
    """The text of a field, or a whole number as text; "" for none."""
    value: Any = fields.get(name)
    return str(value) if isinstance(value, int) else text_field(fields, name, optional=True)


def position_of(fields: Fields) -> int:
    """The place of a passage in its article. Raises `IllTyped`."""
    value = fields.get("position")
    found = _POSITION.fullmatch("0" if value is None else str(value))
    if not found:
        raise IllTyped("position is not a whole number from 0")
    return int(found[1])


def _split(file: TableOfFile, fields: Fields) -> str:
    named = optional(fields, "split") or file.split
    split = named if named in SPLITS else split_in(named)
    if split is None:
        if not named and file.table == "answers":
            return ""
        if not named:
            raise InputError(
                f"{file.path} names no split: give it a column `split` (train, dev, test), or a name like "
                f"{file.table}.test{suffix_of(file.path)}"
            )
        raise IllTyped("split is not train, dev or test")
    return split
