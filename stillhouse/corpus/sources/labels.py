"""Queries and qrels, the same in every format: `queries.jsonl` and `qrels/<split>.tsv`, or other tables. The
source's own, a folder's with extra dev or test queries, and those that Stillhouse writes.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path

from stillhouse.core.artifacts import write_whole
from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.lines import Fields, find_file, identifier, made_of, read_objects, text_field
from stillhouse.corpus.sources.qrels_lines import read_qrels
from stillhouse.corpus.sources.rows import SPLITS, Each, Part, Qrel, Query, Rejected, Row, Source, split_in
from stillhouse.corpus.sources.spans import Span, divide
from stillhouse.corpus.sources.table_columns import PART, SUFFIXES, TableOfFile, files_of
from stillhouse.corpus.sources.tables import read_tables

QUERIES, QRELS = "queries", "qrels"
QUERY_ID = ("_id", "id", "query_id", "qid")
QUERY_TEXT = ("text", "query", "question")
LINES = (".tsv", ".tsv.gz", ".txt", ".txt.gz", ".qrels", ".trec")
"""The endings of qrels that are read as lines of text; others are tables."""
PLACES = {"dev_queries": "dev", "test_queries": "test"}
"""The settings that name such folders, with their split; also the prefixes of these queries' file names in
`rejected.parquet`."""
WRITTEN_BY = {"train": "; `stillhouse queries export` writes one", "dev": "; `stillhouse label` writes one"}


def find_labels(folder: Path, *splits: str) -> dict[str, Path]:
    """The query and qrels files of a folder, by their names inside it; {} for a corpus without labels, and no folder.

    With `splits`, only the qrels of these. Raises `InputError` for qrels without queries, for a file of qrels that is
    not named after a split or cannot be read, and for two files of one split.
    """
    if not folder.is_dir():
        return {}
    find_file(folder, "queries.jsonl")  # refuses a second one
    queries = {file.name: file.path for file in files_of(folder, QUERIES)}
    qrels = _qrels_of(folder)
    if qrels and not queries:
        raise InputError(f"{folder} has qrels but no queries.jsonl; add the queries")
    split_of = {name: split_in(path.name) or "" for name, path in qrels.items()}
    for name, split in split_of.items():
        if not split or not name.endswith((*LINES, *SUFFIXES)):
            raise InputError(
                f"{qrels[name]} is not a split; rename it to qrels/train.tsv, dev.tsv or test.tsv (or .jsonl, "
                ".csv, .parquet), or delete it"
            )
        if len(same := {PART.sub("", other) for other in qrels if split_of[other] == split}) > 1:
            raise InputError(f"{folder} has both {' and '.join(sorted(same))}; remove one of them")
    chosen = [name for name in qrels if not splits or split_of[name] in splits]
    return queries | {name: qrels[name] for name in sorted(chosen, key=lambda name: SPLITS.index(split_of[name]))}


def labels_in(setting: str, folder: Path, split: str) -> dict[str, Path]:
    """The labels of a split in the folder that a setting names. Raises `InputError` if it lacks queries or qrels."""
    labels = find_labels(folder, split)
    if len(labels) < 2:
        raise InputError(
            f"{setting}: {folder} must be a folder with queries.jsonl (_id, text) and qrels/{split}.tsv (query-id, "
            f"corpus-id, score), each also with .gz{WRITTEN_BY.get(split, '')}"
        )
    return labels


def _qrels_of(folder: Path) -> dict[str, Path]:
    """The files in `qrels/` or, without such a folder, those that are named qrels."""
    within = folder / QRELS
    if not within.is_dir():
        return {file.name: file.path for file in files_of(folder, QRELS)}
    return {f"{QRELS}/{path.name}": path for path in sorted(within.iterdir()) if path.is_file() and path.name[0] != "."}


def read_labels(files: Mapping[str, Path]) -> Iterator[Query | Qrel | Rejected]:
    """The rows of the files that `find_labels` found: all queries, then all qrels."""
    for name, path in files.items():
        split = split_in(path.name) or ""
        if name in ("queries.jsonl", "queries.jsonl.gz"):
            yield from read_queries(path, name)
        elif name.startswith(QRELS) and name.endswith(LINES):
            yield from read_qrels(path, name, split)
        else:
            table = QRELS if name.startswith(QRELS) else QUERIES
            rows = read_tables([TableOfFile(table, name, path, split)])
            yield from (row for row in rows if isinstance(row, (Query, Qrel, Rejected)))


def read_queries(path: Path, name: str) -> Iterator[Query | Rejected]:
    """The rows of a `queries.jsonl`."""

    def query(fields: Fields) -> Iterator[Query]:
        text = next((field for field in QUERY_TEXT if field in fields), QUERY_TEXT[0])
        yield Query(identifier(fields, QUERY_ID), text_field(fields, text), fields.where)

    return made_of(read_objects(path, name), "query", QUERY_ID, query)


def labelled_lines(format: str, path: Path, read: Callable[[Path, Span], Iterable[Row]]) -> Source:
    """A source of one file of lines, which `read` reads by spans, with the queries and qrels beside it."""
    labels = find_labels(path.parent)
    labels.pop(path.name, None)

    def parts(size: int, each: Each) -> list[Part]:
        spans = divide(path, size, each)
        return [*(Part(partial(read, path, span)) for span in spans), Part(partial(read_labels, labels))]

    return Source(format, {path.name: path} | labels, parts)


def with_queries(source: Source, place: str, folder: Path) -> Source:
    """The source with the labelled queries of `folder` (BEIR layout) after its own rows.

    Raises `InputError` if the folder lacks one of the two files.
    """
    labels = labels_in(place, folder, PLACES[place])

    def parts(size: int, each: Each) -> list[Part]:
        return [*source.parts(size, each), Part(partial(_read, place, labels))]

    files = source.files | {f"{place}/{name}": path for name, path in labels.items()}
    return dataclasses.replace(source, files=files, parts=parts)


def _read(place: str, labels: dict[str, Path]) -> Iterator[Row]:
    for row in read_labels(labels):
        yield row._replace(where=f"{place}/{row.where}")


def write_queries(folder: Path, texts: Mapping[str, str]) -> None:
    """Writes `queries.jsonl` of query texts by id."""
    lines = [json.dumps({"_id": id, "text": text}, ensure_ascii=False) + "\n" for id, text in texts.items()]
    write_whole(folder / "queries.jsonl", "".join(lines))


def write_qrels(folder: Path, split: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Writes `qrels/<split>.tsv` of pairs of a query id and the id of a relevant passage."""
    rows = [("query-id", "corpus-id", "score"), *((query, passage, "1") for query, passage in pairs)]
    write_whole(folder / "qrels" / f"{split}.tsv", "".join("\t".join(row) + "\n" for row in rows))
