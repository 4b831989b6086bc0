"""JSON files of `corpus`, `queries` and `relevant_docs`: the three arguments of sentence-transformers'
`InformationRetrievalEvaluator`, and what LlamaIndex's `EmbeddingQAFinetuneDataset` saves."""

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.json_files import beginning, read_document
from stillhouse.corpus.sources.lines import IllTyped, object_of, text_field
from stillhouse.corpus.sources.options import Options
from stillhouse.corpus.sources.rows import CONTENT_LENGTH, Passage, Qrel, Query, Rejected, Row, Source, split_in, whole

EVALUATOR_JSON = "evaluator-json"
KEYS = "corpus", "queries", "relevant_docs"
_BEGINNING = re.compile(rb"\{\s*\"(%s)\"\s*:" % "|".join(KEYS).encode())


def open_evaluator_json(location: Path, options: Options) -> Source:
    """One such file, or a folder of them; a file's name says its split, and without one it is train.

    `corpus` maps ids to texts, or to objects with `title` and `text`; `queries` maps ids to questions; `relevant_docs`
    maps those to ids of passages, or to grades by id. Files may repeat passages of each other.
    """
    paths = evaluator_files(location)
    if not paths:
        raise InputError(f"{location} has no JSON file with {', '.join(KEYS)}")
    return Source(EVALUATOR_JSON, {path.name: path for path in paths}, whole(partial(_read, paths)))


def evaluator_files(location: Path) -> list[Path]:
    """The files that begin with one of these keys, of a folder, or the file itself; and beside them unreadable ones,
    which reading then reports."""
    candidates = sorted(location.iterdir()) if location.is_dir() else [location]
    named = [path for path in candidates if path.name.endswith((".json", ".json.gz")) and path.is_file()]
    begins = {path: beginning(path) for path in named}
    if not any(map(_BEGINNING.match, begins.values())):
        return []
    return [path for path, start in begins.items() if not start or _BEGINNING.match(start)]


def _read(paths: list[Path]) -> Iterator[Row]:
    taken: set[int] = set()
    for path in paths:
        content, split = read_document(path), split_in(path.name) or "train"
        passages, queries, relevant = (_mapping(path, content, key) for key in KEYS)
        for id, value in passages.items():
            where = f"{path.name}:{id}"
            try:
                passage = _passage(id, value, where)
            except IllTyped as reason:
                yield Rejected("passage", id, str(reason), where, str(value)[:CONTENT_LENGTH])
                continue
            if (key := hash((id, passage.title, passage.text))) not in taken:
                taken.add(key)
                yield passage
        for id, text in queries.items():
            where = f"{path.name}:{id}"
            if isinstance(text, str):
                yield Query(id, text, where)
            else:
                yield Rejected("query", id, "not text", where, str(text)[:CONTENT_LENGTH])
        for id, judged in relevant.items():
            where = f"{path.name}:{id}"
            if not isinstance(judged, (dict, list)):
                yield Rejected("qrel", id, "neither ids nor grades by id", where, str(judged)[:CONTENT_LENGTH])
                continue
            for passage_id, grade in judged.items() if isinstance(judged, dict) else ((each, 1) for each in judged):
                yield Qrel(id, str(passage_id), str(grade), split, where)


def _mapping(path: Path, content: Any, key: str) -> Mapping[str, Any]:
    if not isinstance(content, dict) or not isinstance(content.get(key), dict):
        raise InputError(f"{path}: {key} is not a JSON object of ids")
    return content[key]


def _passage(id: str, value: Any, where: str) -> Passage:
    if isinstance(value, str):
        return Passage(id, "", value, id, "", 0, where)
    fields = object_of(value)
    return Passage(id, text_field(fields, "title", optional=True), text_field(fields, "text"), id, "", 0, where)
