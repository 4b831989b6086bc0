"""Reads every source slowly and simply, following `docs/reference/formats.md`, into the rows that a reader must give.

It uses no code of `stillhouse`. A row is a tuple of its kind and values; `("rejected",)` and `("left out",)` take the
place of a row that is not accepted. `Refused` means that the whole source must be refused.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from typing import Any

from slow_cells import Refused, filled_lines, tab_rows
from slow_tables import LEFT_OUT, REJECTED, Bad, Files, Row, table_rows
from slow_trees import spaceless


def slow_rows(name: str, files: Files) -> list[Row]:
    """The rows of the source `name` (of `sources_to_damage`), in order. Raises `Refused`."""
    return list(READERS[name](files))


def _id(value: dict[str, Any], *names: str) -> str:
    for name in names:
        if name in value:
            if type(value[name]) not in (str, int):
                raise Bad
            return str(value[name])
    raise Bad


def _text(value: dict[str, Any], name: str, default: str | None = None) -> str:
    found = value.get(name, default)
    if found is None:
        found = default
    if not isinstance(found, str):
        raise Bad
    return found


def _list(value: dict[str, Any], name: str) -> list[Any]:
    if not isinstance(value.get(name), list):
        raise Bad
    return value[name]


def _objects(data: bytes) -> Iterator[dict[str, Any] | None]:
    """Yield the JSON object of each line of a file; None for a line without one."""
    for line in filled_lines(data):
        try:
            value = None if line is None else json.loads(line)
        except (ValueError, RecursionError):
            value = None
        yield value if isinstance(value, dict) else None


def _each(data: bytes, read: Callable[[dict[str, Any]], list[Row]]) -> Iterator[Row]:
    """Yield the rows that `read` makes of each object of a file; a bad object is rejected."""
    for value in _objects(data):
        try:
            if value is None:
                raise Bad
            rows = read(value)
        except Bad:
            rows = [REJECTED]
        yield from rows


def _document(data: bytes) -> Any:
    try:
        return json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise Refused("not JSON") from None


def _queries(data: bytes) -> Iterator[Row]:
    return _each(data, lambda value: [("query", _id(value, "_id", "id", "query_id"), _text(value, "text"))])


QRELS = (
    ("query_id", "query-id", "qid"),
    ("passage_id", "corpus-id", "corpus_id", "pid", "docid", "doc_id", "doc-id"),
    ("relevance", "score", "rel", "label"),
)


def _qrels(data: bytes, split: str) -> Iterator[Row]:
    """Three columns or TREC's four, as many as in the first line that can be read, which may name them."""
    places: list[int] = []
    width = 0
    first = True
    for line in filled_lines(data):
        if line is None:
            yield REJECTED
            continue
        cells = line.split("\t")
        if len(cells) not in (3, 4):
            cells = line.split()
        lower = [cell.strip().lower() for cell in cells]
        named = [next((lower.index(name) for name in names if name in lower), -1) for names in QRELS]
        heading, first = first and min(named) >= 0, False
        if heading:
            places, width = named, len(cells)
            continue
        if not width and len(cells) in (3, 4):
            places, width = ([0, 1, 2], 3) if len(cells) == 3 else ([0, 2, 3], 4)
        yield ("qrel", *(cells[place] for place in places), split) if width and len(cells) == width else REJECTED


def _labels(files: Files) -> Iterator[Row]:
    yield from _queries(files["queries.jsonl"])
    yield from _qrels(files["qrels/test.tsv"], "test")


def _beir(files: Files) -> Iterator[Row]:
    def read(value: dict[str, Any]) -> list[Row]:
        id, title, text = _id(value, "_id", "id", "passage_id"), _text(value, "title", ""), _text(value, "text")
        if not text.strip():
            title, text = "", title
        return [("passage", id, title, text, id, "", 0)]

    yield from _each(files["corpus.jsonl"], read)
    yield from _labels(files)


def _article_jsonl(files: Files) -> Iterator[Row]:
    seen: set[str] = set()

    def read(value: dict[str, Any]) -> list[Row]:
        id, title, rows = _id(value, "_id", "id"), _text(value, "title", ""), []
        if id in seen:
            raise Bad
        for section in _list(value, "sections"):
            if not isinstance(section, dict):
                raise Bad
            heading = _text(section, "heading", "")
            for paragraph in _list(section, "paragraphs"):
                place = len(rows)
                passage = ("passage", f"{id}#{place + 1}", title, paragraph, id, heading, place)
                rows.append(passage if isinstance(paragraph, str) else REJECTED)
        if not rows:
            raise Bad
        links = _list(value, "links") if "links" in value else []
        if not all(isinstance(link, str) for link in links):
            raise Bad
        seen.add(id)
        return rows + [("link", id, link) for link in links]

    yield from _each(files["articles.jsonl"], read)
    yield from _labels(files)


def _squad(files: Files) -> Iterator[Row]:
    content = _document(files["train.json"])
    if not isinstance(content, dict) or not isinstance(content.get("data"), list):
        raise Refused("no data")
    paragraphs: dict[str, int] = {}
    for article in content["data"]:
        try:
            if not isinstance(article, dict):
                raise Bad
            title, items = _text(article, "title"), _list(article, "paragraphs")
        except Bad:
            yield REJECTED
            continue
        id = spaceless(title)
        for item in items:
            place = paragraphs[id] = paragraphs.get(id, 0) + 1
            try:
                if not isinstance(item, dict):
                    raise Bad
                context, questions = _text(item, "context"), _list(item, "qas")
            except Bad:
                yield REJECTED
                continue
            yield "passage", f"{id}#{place}", title.replace("_", " "), context, id, "", place - 1
            for question in questions:
                yield from _squad_question(question, f"{id}#{place}")


def _squad_question(item: object, passage: str) -> list[Row]:
    try:
        if not isinstance(item, dict) or not all(isinstance(answer, dict) for answer in _list(item, "answers")):
            raise Bad
        id, text = _id(item, "id"), _text(item, "question")
        answers = [_text(answer, "text") for answer in item["answers"]]
    except Bad:
        return [REJECTED]
    if item.get("is_impossible") or not answers:
        return [LEFT_OUT]
    logged = [("answer", id, answer, "text", "train") for answer in answers]
    return [("query", id, text), ("qrel", id, passage, "1", "train"), *logged]


def _dpr(files: Files) -> Iterator[Row]:
    waiting: list[tuple[str, str]] = []  # words of a passage, query
    found = set()
    examples = _document(files["nq-train.json"])
    if not isinstance(examples, list):
        raise Refused("no list")
    for number, example in enumerate(examples):
        id = f"nq-train-{number}"
        try:
            if not isinstance(example, dict):
                raise Bad
            question, answers = _text(example, "question"), example.get("answers", [])
            contexts = _list(example, "positive_ctxs")
            if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
                raise Bad
        except Bad:
            yield REJECTED
            continue
        yield "query", id, question
        yield from (("answer", id, answer, "text", "train") for answer in answers)
        for context in contexts:
            try:
                if not isinstance(context, dict):
                    raise Bad
                known = {key: value for key, value in context.items() if value is not None}
                if "passage_id" in known or "psg_id" in known:
                    yield "qrel", id, _id(known, "passage_id", "psg_id").removeprefix("wiki:"), "1", "train"
                else:
                    waiting.append((" ".join(_text(context, "text").split()), id))
            except Bad:
                yield REJECTED
    rows = list(tab_rows(files["nq-test.qa.csv"]))
    yield from (REJECTED for row in rows if row is None)
    for number, row in enumerate(row for row in rows if row is not None):
        yield from _dpr_question(f"nq-test-{number}", row)
    rows = list(tab_rows(files["psgs_w100.tsv"]))
    yield from (REJECTED for row in rows if row is None)
    for number, row in enumerate(row for row in rows if row is not None):
        if number == 0 and row == ["id", "text", "title"]:
            continue
        if len(row) == 3:
            id = row[0].removeprefix("wiki:")
            yield "passage", id, row[2], row[1], id, "", 0
            words = " ".join(row[1].split())
            if words not in found:
                found.add(words)
                yield from (("qrel", query, id, "1", "train") for text, query in waiting if text == words)
        else:
            yield REJECTED
    yield from (REJECTED for text, _ in waiting if text not in found)


def _dpr_question(id: str, cells: list[str]) -> list[Row]:
    if len(cells) != 2 or len(cells[1]) > 2**18:
        return [REJECTED]
    try:
        answers = ast.literal_eval(cells[1].strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return [REJECTED]
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        return [REJECTED]
    return [("query", id, cells[0]), *(("answer", id, answer, "text", "test") for answer in answers)]


HEADS = {"id", "pid", "_id", "docid", "qid", "query_id", "query-id"}


def _msmarco_rows(data: bytes, most: int = -1) -> Iterator[list[str] | None]:
    is_first = True
    for line in filled_lines(data):
        if line is None:
            yield None
            continue
        cells = line.split("\t", most)
        if not (is_first and cells and cells[0] in HEADS):
            yield cells
        is_first = False


def _msmarco(files: Files) -> Iterator[Row]:
    titles: dict[str, str] = {}
    for cells in _msmarco_rows(files["titles.tsv"]):
        if cells is None or len(cells) != 2:
            yield REJECTED
        else:
            titles[cells[0]] = "" if cells[1].strip() == "-" else cells[1]
    for cells in _msmarco_rows(files["collection.tsv"]):
        if cells is None or len(cells) not in (2, 3):
            yield REJECTED
        else:
            title = titles.get(cells[0], cells[1] if len(cells) == 3 else "")
            yield "passage", cells[0], title, cells[-1], cells[0], "", 0
    judged = set()
    for row in _qrels(files["qrels.test.tsv"], "test"):
        if row[0] == "qrel":
            judged.add(row[1])
        yield row
    for cells in _msmarco_rows(files["queries.test.tsv"], 1):
        if cells is None or len(cells) != 2:
            yield REJECTED
        else:
            yield ("query", *cells) if cells[0] in judged else LEFT_OUT


def _reqa(files: Files) -> Iterator[Row]:
    passages: dict[str, tuple[str, str]] = {}
    sentences: dict[str, int] = {}

    def passage(value: dict[str, Any]) -> list[Row]:
        id = _id(value, "_id", "id")
        if id in passages:
            raise Bad
        passages[id] = _text(value, "title", "").replace("_", " "), _text(value, "text")
        return []

    def candidate(value: dict[str, Any]) -> list[Row]:
        id, sentence, owner = _id(value, "_id", "id"), _text(value, "sentence"), _id(value, "p")
        if owner not in passages or not sentence.strip():
            raise Bad
        title, text = passages[owner]
        sentences[owner] = sentences.get(owner, -1) + 1
        return [("passage", id, sentence, text, owner, title, sentences[owner])]

    yield from _each(files["passages.jsonl"], passage)
    yield from _each(files["candidates.jsonl"], candidate)
    lists = _document(files["split_80_20.json"])
    if not isinstance(lists, dict) or not all(isinstance(lists.get(part), list) for part in ("train", "valid", "test")):
        raise Refused("no lists")
    split_of: dict[str, str] = {}
    for part, split in (("train", "train"), ("valid", "dev"), ("test", "test")):
        for id in lists[part]:
            if split_of.setdefault(str(id), split) != split:
                raise Refused("in two lists")
    for row in _queries(files["queries.jsonl"]):
        yield LEFT_OUT if row != REJECTED and row[1] not in split_of else row
    for row in _qrels(files["qrels.tsv"], ""):
        yield row if row == REJECTED else (*row[:4], split_of[row[1]]) if row[1] in split_of else LEFT_OUT


READERS: dict[str, Callable[[Files], Iterator[Row]]] = {
    "beir": _beir,
    "article-jsonl": _article_jsonl,
    "squad": _squad,
    "dpr": _dpr,
    "msmarco": _msmarco,
    "reqa": _reqa,
    "tables": table_rows,
    "parquet": table_rows,
}
"""HTML and Markdown are absent, because libraries parse them; `page_fault` of `slow_trees` checks what is read."""
