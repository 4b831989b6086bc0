"""The rules of a corpus in `stillhouse.corpus.cleaning`, applied slowly: from a source's rows to tables."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import regex

Row = tuple[Any, ...]
PRECEDENCE = ("test", "dev", "train")


def slow_tables(rows: list[Row]) -> dict[str, list[Row]]:
    """Return the rows of every table except `rejected`; only those of `passages` are in order."""
    passages: dict[str, Row] = {}
    queries: dict[str, str] = {}
    for kind, *values in rows:
        if kind not in ("passage", "query") or not _is_id(values[0]) or not all(map(_is_unicode, values[1:5])):
            continue
        if kind == "passage" and values[2].strip():
            passages.setdefault(values[0], tuple(values))
        if kind == "query" and values[1].strip():
            queries.setdefault(values[0], values[1])
    articles = {values[3] for values in passages.values()}
    links = {
        (source, target): None
        for kind, source, target in (row for row in rows if row[0] == "link")
        if source in articles and target in articles and source != target
    }
    qrels: dict[Row, int] = {}
    for _, query, passage, relevance, split in (row for row in rows if row[0] == "qrel"):
        grade = re.fullmatch(r"([+-]?[0-9]{1,10})(\.0*)?", relevance.strip())
        if query in queries and passage in passages and grade and 0 <= int(grade[1]) < 2**31:
            qrels.setdefault((query, passage, split), int(grade[1]))
    answers = [row[1:] for row in rows if row[0] == "answer" and row[1] in queries and _is_answer(row[2], row[3])]
    split_of = _splits(queries, qrels, answers)
    return {
        "passages": list(passages.values()),
        "links": list(links),
        "queries": [(id, text, split_of[id]) for id, text in queries.items() if id in split_of],
        "qrels": [(*key[:2], grade, key[2]) for key, grade in qrels.items() if split_of.get(key[0]) == key[2]],
        "not_prose": list({row[1]: row[1:] for row in rows if row[0] == "notprose" and row[1] in passages}.values()),
        "answers": list(dict.fromkeys((id, text, kind) for id, text, kind, _ in answers if id in split_of)),
    }


def _splits(queries: dict[str, str], qrels: dict[Row, int], answers: list[Row]) -> dict[str, str]:
    """Return the split of each query that has a relevant passage, or that has answers in test.

    A query in several splits goes to the first of test, dev and train. One with a text of an earlier split is dropped.
    """
    split_of: dict[str, str] = {}
    dropped: set[str] = set()
    texts: dict[str, str] = {}  # the split of each text so far
    for split in PRECEDENCE:
        golden = {query for (query, _, of), grade in qrels.items() if grade > 0 and of == split}
        if split == "test":
            golden |= {query for query, _, _, of in answers if of == "test"}
        for id in golden - set(split_of) - dropped:
            text = " ".join(unicodedata.normalize("NFKC", queries[id]).casefold().split())
            if texts.get(text, split) != split:
                dropped.add(id)
            else:
                split_of[id] = texts[text] = split
    return split_of


def _is_unicode(text: object) -> bool:
    return not isinstance(text, str) or not any("\ud800" <= character <= "\udfff" for character in text)


def _is_id(id: str) -> bool:
    turning = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    return id != "" and not any(
        each.isspace() or unicodedata.category(each) in ("Cc", "Cs") or unicodedata.bidirectional(each) in turning
        for each in id
    )


def _is_answer(text: str, kind: str) -> bool:
    if kind not in ("text", "regex") or not text.strip() or not _is_unicode(text):
        return False
    try:
        for form in (text, unicodedata.normalize("NFD", text)) if kind == "regex" else ():
            regex.compile(form, regex.IGNORECASE | regex.UNICODE | regex.MULTILINE)
    except Exception:
        return False
    return True
