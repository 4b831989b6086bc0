"""MS MARCO in tab-separated files, with the judgements of a TREC Deep Learning track as test."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.file_names import entries
from stillhouse.corpus.sources.lines import find_file, read_lines
from stillhouse.corpus.sources.options import Options
from stillhouse.corpus.sources.qrels_lines import read_qrels
from stillhouse.corpus.sources.rows import Each, LeftOut, Part, Passage, Qrel, Query, Rejected, Row, Source
from stillhouse.corpus.sources.spans import WHOLE, Span, divide
from stillhouse.corpus.sources.split_names import split_in

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


def _find_labels(folder: Path) -> dict[str, list[tuple[Path, str]]]:
    """`queries` and `qrels` → (file, split). Raises `InputError` for a file without a known split and for two test
    sets."""
    found: dict[str, list[tuple[Path, str]]] = {"queries": [], "qrels": []}
    for path in entries(folder):
        match = _LABELS.fullmatch(path.name)
        if not match or not path.is_file() or "eval" in path.name:
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


def _read_rows(path: Path, most: int = -1, span: Span = WHOLE) -> Iterator[tuple[str, list[str]] | Rejected]:
    """The lines of a file or a span of it as (where, cells), without a heading."""
    first = span.is_first
    for line in read_lines(path, path.name, span=span):
        if isinstance(line, Rejected):
            yield line
            continue
        cells = line[1].split("\t", most)
        is_heading, first = first and cells[0] in HEADS, False
        if not is_heading:
            yield f"{path.name}:{line[0]}", cells


def _read_titles(path: Path, titles: dict[str, str]) -> Iterator[Rejected]:
    for row in _read_rows(path):
        if isinstance(row, Rejected):
            yield row
            continue
        where, cells = row
        if len(cells) == 2:
            # The title files of MS MARCO write "-" for none.
            titles[cells[0]] = "" if cells[1].strip() == "-" else cells[1]
        else:
            yield Rejected("line", cells[0], "not two columns (id, title)", where, "\t".join(cells))


def _read_passages(path: Path, titles: dict[str, str], span: Span = WHOLE) -> Iterator[Row]:
    forms = {len(form): form for form in COLLECTIONS[path.name.removesuffix(".gz")]}
    known = " or ".join(", ".join(form) for form in forms.values())
    for row in _read_rows(path, span=span):
        if isinstance(row, Rejected):
            yield row
            continue
        where, cells = row
        form = forms.get(len(cells))
        if form is None:
            yield Rejected("passage", cells[0], f"columns are not {known}", where, "\t".join(cells))
            continue
        values = dict(zip(form, cells))
        id, title = values["id"], titles.get(values["id"], values.get("title", ""))
        yield Passage(id, title, values["text"], article_id=id, section="", position=0, where=where)


def _read_qrels(path: Path, split: str, judged: set[str]) -> Iterator[Row]:
    for row in read_qrels(path, path.name, split):
        if isinstance(row, Qrel):
            judged.add(row.query_id)
        yield row


def _read_queries(path: Path, judged: set[str]) -> Iterator[Row]:
    for row in _read_rows(path, most=1):
        if isinstance(row, Rejected):
            yield row
            continue
        where, cells = row
        if len(cells) != 2:
            yield Rejected("query", cells[0], "not two columns (id, text)", where, "\t".join(cells))
        elif cells[0] in judged:
            yield Query(cells[0], cells[1], where)
        else:
            yield LeftOut("query", "no qrel of its split names it")
