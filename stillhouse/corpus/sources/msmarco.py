"""MS MARCO in tab-separated files, with the judgements of a TREC Deep Learning track as test."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.cells import Cells, by_form
from stillhouse.corpus.sources.lines import find_file, read_lines
from stillhouse.corpus.sources.options import Options
from stillhouse.corpus.sources.qrels_lines import read_qrels
from stillhouse.corpus.sources.rows import Each, LeftOut, Part, Passage, Qrel, Query, Rejected, Row, Source, split_in
from stillhouse.corpus.sources.spans import WHOLE, Span, divide

MSMARCO = "msmarco"
# The columns of each file; `title` and `text` are kept.
COLLECTIONS = {
    "collection.tsv": (("id", "text"), ("id", "title", "text")),
    "corpus.tsv": (("id", "title", "text"), ("id", "text")),
    "para.txt": (("id", "text"),),
    "msmarco-docs.tsv": (("id", "url", "title", "text"),),
}
TITLES = ("titles.tsv", "para.title.txt")
HEADS = ("id", "pid", "_id", "docid", "qid", "query_id", "query-id")
"""A first line that begins with one of these is a header."""

_LABELS = re.compile(r".*(queries|qrels).*\.(tsv|txt)(\.gz)?")
_BESIDE = re.compile(rf"{_LABELS.pattern}|({'|'.join(map(re.escape, TITLES))})(\.gz)?")
_DEEP_LEARNING = re.compile(r"20(19|2[0-9])|dl-?(19|2[0-9])")


def find_collection(folder: Path) -> Path | None:
    """The file of passages in a folder. Raises `InputError` if there are several."""
    found = [path for name in COLLECTIONS if (path := find_file(folder, name))]
    if len(found) > 1:
        raise InputError(f"{folder} has {' and '.join(path.name for path in found)}; keep only one of them")
    return found[0] if found else None


def open_msmarco(folder: Path, options: Options) -> Source:
    """A folder with one of `COLLECTIONS`, files `*queries*` and `*qrels*`, and optionally one of `TITLES`.

    A file's name gives its split (`qrels.train.tsv`, `msmarco-docdev-queries.tsv`); the year of a Deep Learning track
    means test. Of `dev.small` and `dev`, the small one is read; files named `eval` are ignored. Queries without a qrel
    in their split are left out.
    """
    collection = find_collection(folder)
    if collection is None:
        raise InputError(f"{folder} has no {', '.join(COLLECTIONS)} (each also with .gz), so it is not MS MARCO")
    titles = [path for name in TITLES if (path := find_file(folder, name))][:1]
    labels = _find_labels(folder)

    def titled() -> Iterator[Row]:  # any passage may have any title
        names: dict[str, str] = {}
        for path in titles:
            yield from _read_titles(path, names)
        yield from _read_passages(collection, names)

    def parts(size: int, each: Each) -> list[Part]:
        spans = divide(collection, size, each)
        passages = [Part(partial(_read_passages, collection, {}, span)) for span in spans]
        return [*([Part(titled)] if titles else passages), Part(partial(_read_labels, labels))]

    paths = [collection, *titles, *(path for kind in ("queries", "qrels") for path, _ in labels[kind])]
    return Source(MSMARCO, {path.name: path for path in paths}, parts)


def _read_labels(labels: Mapping[str, Sequence[tuple[Path, str]]]) -> Iterator[Row]:
    judged: dict[str, set[str]] = {}
    for path, split in labels["qrels"]:
        yield from _read_qrels(path, split, judged.setdefault(split, set()))
    for path, split in labels["queries"]:
        yield from _read_queries(path, judged.get(split, set()))


def label_files(folder: Path) -> list[Path]:
    """The files of queries, qrels and titles in a folder."""
    return [path for path in sorted(folder.iterdir()) if path.is_file() and _BESIDE.fullmatch(path.name)]


def _find_labels(folder: Path) -> dict[str, list[tuple[Path, str]]]:
    """`queries` and `qrels` → (file, split). Raises `InputError` for a file without a known split and for two test
    sets."""
    found: dict[str, list[tuple[Path, str]]] = {"queries": [], "qrels": []}
    for path in label_files(folder):
        match = _LABELS.fullmatch(path.name)
        if not match or "eval" in path.name:
            continue
        split = "test" if _DEEP_LEARNING.search(path.name) else split_in(path.name)
        if split is None:
            raise InputError(
                f"{path}: its name does not say which split it is; add train, dev or test to the name, or move it away"
            )
        found[match.group(1)].append((path, split))
    for kind, files in found.items():
        small = {split for path, split in files if ".small." in path.name}
        found[kind] = [(path, split) for path, split in files if split not in small or ".small." in path.name]
    years: dict[str, Path] = {}
    for path, split in found["qrels"]:
        if split == "test":
            years.setdefault(_of(path.name), path)
    if len(years) > 1:
        raise InputError(
            f"{folder} has {' and '.join(path.name for path in years.values())}, which would be one test split: "
            "keep the files of one track here, and measure the others from separate folders with links to the "
            "collection (`stillhouse zero-shot FOLDER FOLDER`)"
        )
    without = {split for _, split in found["qrels"]} - {split for _, split in found["queries"]}
    if without:
        raise InputError(f"{folder} has {', '.join(sorted(without))} qrels but no queries for them; add the queries")
    return found


def _of(name: str) -> str:
    """The test set of a qrels file: the year of a Deep Learning track, or "" for another test set."""
    found = _DEEP_LEARNING.search(name)
    return found.group()[-2:] if found else ""


def _cells(path: Path, span: Span = WHOLE, most: int = -1) -> Iterator[Cells | Rejected]:
    for line in read_lines(path, path.name, span=span):
        yield line if isinstance(line, Rejected) else (line[0], line[1].split("\t", most))


def _read_titles(path: Path, titles: dict[str, str]) -> Iterator[Rejected]:
    for row in by_form(_cells(path), path.name, "line", ("id", "title"), heads=HEADS):
        if isinstance(row, Rejected):
            yield row
        else:  # the title files of MS MARCO write "-" for none
            titles[row["id"]] = "" if row["title"].strip() == "-" else row["title"]


def _read_passages(path: Path, titles: dict[str, str], span: Span = WHOLE) -> Iterator[Row]:
    forms, heads = COLLECTIONS[path.name.removesuffix(".gz")], HEADS if span.is_first else ()
    for row in by_form(_cells(path, span), path.name, "passage", *forms, heads=heads):
        if isinstance(row, Rejected):
            yield row
        else:
            id, title = row["id"], titles.get(row["id"], row.get("title", ""))
            yield Passage(id, title, row["text"], article_id=id, section="", position=0, where=row.where)


def _read_qrels(path: Path, split: str, judged: set[str]) -> Iterator[Row]:
    for row in read_qrels(path, path.name, split):
        if isinstance(row, Qrel):
            judged.add(row.query_id)
        yield row


def _read_queries(path: Path, judged: set[str]) -> Iterator[Row]:
    for row in by_form(_cells(path, most=1), path.name, "query", ("id", "text"), heads=HEADS):
        if isinstance(row, Rejected):
            yield row
        elif row["id"] in judged:
            yield Query(row["id"], row["text"], row.where)
        else:
            yield LeftOut("query", "no qrel of its split names it")
