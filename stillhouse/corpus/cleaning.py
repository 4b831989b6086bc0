"""The rules of a corpus: rows that break a rule are rejected with a reason, all other rows go into the tables.

The rules, in the order in which they are applied:

1. a passage or query has valid Unicode, a text, and an id without white space and control characters (a TREC run file
   cannot hold them, and some tools cannot read them);
2. ids are unique among passages and among queries, and the first of two is kept (a passage and a query may share one);
3. a link leads from one article of the corpus to another; repeats and self-links are dropped silently;
4. a qrel names an existing query and passage, once per split, and its relevance is a whole number of at least 0; one
   that names an article, or a passage that was split, stands for each of its passages;
5. a query is in one split (test before dev before train, by id and by text) and has a relevant passage there, or in
   test at least an answer (in other splits such a query is left out and counted); one that no qrel or answer names
   is a question without labels, kept apart once by text;
6. an answer belongs to a query of the corpus, is not empty and, if its kind is `regex`, compiles; repeats are dropped
   silently.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from heapq import merge
from itertools import chain
from operator import itemgetter
from pathlib import Path

import pyarrow as pa

from stillhouse.corpus.answers import answer_fault
from stillhouse.corpus.sources.lines import together
from stillhouse.corpus.sources.rows import (
    CONTENT_LENGTH,
    Answer,
    LeftOut,
    Link,
    NotProse,
    Passage,
    Qrel,
    Query,
    Rejected,
    Row,
)
from stillhouse.corpus.sources.text_encoding import is_unicode
from stillhouse.corpus.taken_passages import Placed, TakenPassages, checked_batch

PRECEDENCE = ("test", "dev", "train")
"""The first of these splits keeps a query that is in several, so that no evaluation query is trained on."""

_AT_ONCE = 2048
"""Rows per block: few enough for the CPU's cache, enough to make arrays worthwhile."""

_CHARACTERS_AT_ONCE = 1 << 24
"""Characters of passages per block; the last passage may exceed it."""

MAX_RELEVANCE = 2**31 - 1
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that no id may hold: control characters, of which NUL ends the id in C programs, and marks that change the
direction of writing and make one id look like another."""
_WHOLE_NUMBER = re.compile(r"([+-]?[0-9]{1,10})(\.0*)?")
"""Some tools write the grade 1 as 1.0."""
NO_WHOLE_NUMBER = "relevance is not a whole number"
WITHOUT_FAULT = "the same text is in|its query is in|no relevant passage|same text$"
"""Matches the reasons of rows that are left out but not wrong: they are repeated, or no passage has the answer."""


@dataclass
class CleanCorpus:
    """The accepted rows, in source order, and the rejected ones."""

    passages: TakenPassages = field(default_factory=TakenPassages)
    links: dict[tuple[str, str], None] = field(default_factory=dict)
    queries: dict[str, Query] = field(default_factory=dict)
    split_of: dict[str, str] = field(default_factory=dict)
    qrels: list[tuple[Qrel, int]] = field(default_factory=list)
    documents: dict[tuple[str, str], str] = field(default_factory=dict)
    """(query id, passage id) → the article, or the passage that was split, that the qrel named instead."""
    answers: dict[tuple[str, str, str], None] = field(default_factory=dict)
    """(query id, answer, kind), without repeats."""
    not_prose: dict[str, str] = field(default_factory=dict)
    """Passage id → kind of `NotProse`; may include passages that were rejected."""
    unjudged: dict[str, Query] = field(default_factory=dict)
    """The queries that no qrel and no answer names, by id."""
    rejected: list[Rejected] = field(default_factory=list)
    given: Counter[str] = field(default_factory=Counter)
    """The number of labels that the source has of each split, taken or not."""
    left_out: Counter[str] = field(default_factory=Counter)
    """The number of rows left out on purpose, for each `kind: reason`."""

    def reasons(self) -> dict[str, int]:
        """The number of rejected rows for each `kind: reason`, most frequent first."""
        counts = Counter(f"{row.kind}: {row.reason}" for row in self.rejected)
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def normalise(text: str) -> str:
    """The form in which two queries are compared: NFKC, case-folded, white space as single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def clean(rows: Iterable[Row], path: Path | None = None) -> CleanCorpus:
    """Applies the rules to the rows of a source, in any order.

    With `path`, passages are written there as they come; otherwise they are kept in memory.
    """
    cleaning = Cleaning(TakenPassages(path))
    for batch, others in checked(rows):
        for _, row in merge(others, cleaning.corpus.passages.add(batch), key=itemgetter(0)):
            cleaning.take(row)
    return cleaning.finish()


class Cleaning:
    """Applies all rules except those for passages. Call `take` with the other rows in their order, and with rejected
    passages as `Rejected`. Call `finish` after all rows and passages.
    """

    def __init__(self, passages: TakenPassages) -> None:
        self.corpus = CleanCorpus(passages)
        self._links: list[Link] = []
        self._qrels: list[Qrel] = []
        self._answers: list[Answer] = []
        self._named = set[str]()

    def take(self, row: Row) -> None:
        corpus = self.corpus
        match row:
            case Query():
                _take_query(corpus, row)
            case Link():
                self._links.append(row)
            case Qrel():
                self._qrels.append(row)
            case Answer():
                self._answers.append(row)
            case NotProse():
                corpus.not_prose[row.id] = row.kind
            case LeftOut():
                corpus.left_out[f"{row.kind}: {row.reason}"] += 1
            case Rejected():
                if row.kind in ("qrel", "answer"):
                    self._named.add(row.id)
                reject(corpus, row.kind, row.id, row.reason, row.where, row.content)

    def finish(self) -> CleanCorpus:
        corpus = self.corpus
        corpus.passages.close()
        _take_links(corpus, self._links)
        self._qrels = _of_passages(corpus, self._qrels)
        known = set(corpus.queries)
        named = self._named.union((row.query_id for row in self._qrels), (row.query_id for row in self._answers))
        # In other splits, an answer alone is no label.
        answered = (row.split for row in self._answers if row.split == "test")
        corpus.given = Counter(chain((row.split for row in self._qrels), answered))
        answers = list(_sound_answers(corpus, self._answers))
        _assign_splits(corpus, _take_qrels(corpus, self._qrels), answers, named)
        _take_answers(corpus, answers, known)
        return corpus


def checked(rows: Iterable[Row]) -> Iterator[tuple[pa.RecordBatch, list[Placed]]]:
    """The passages that break no rule by themselves as batches of `CHECKED`, each with the other rows of its block."""
    begin = 0
    for block in together(rows, _characters, _CHARACTERS_AT_ONCE, _AT_ONCE):
        reasons = iter(_faults([row for row in block if isinstance(row, Passage)]))
        kept: list[tuple[int, Passage]] = []
        others: list[Placed] = []
        for at, row in enumerate(block, start=begin):
            if not isinstance(row, Passage):
                others.append((at, row))
            elif reason := next(reasons):
                others.append((at, Rejected("passage", row.id, reason, row.where, row.text)))
            else:
                kept.append((at, row))
        begin += len(block)
        yield checked_batch(kept), others


def _characters(row: Row) -> int:
    return len(row.text) if type(row) is Passage else 0


def reject(corpus: CleanCorpus, kind: str, id: str, reason: str, where: str, content: str) -> None:
    corpus.rejected.append(shown(Rejected(kind, id, reason, where, content)))


def shown(row: Rejected) -> Rejected:
    """A rejected row, shortened to what is kept of it."""
    # In a line with another delimiter, the whole line is the id.
    id = row.id if len(row.id) <= CONTENT_LENGTH else f"{row.id[: CONTENT_LENGTH - 1]}…"
    texts = (id, row.reason, row.where, row.content[:CONTENT_LENGTH])
    # JSON can contain lone surrogates, which UTF-8 cannot encode; they become question marks.
    return Rejected(row.kind, *(text.encode("utf-8", errors="replace").decode() for text in texts))


def id_fault(id: str) -> str:
    if not id:
        return "empty id"
    if id.split() != [id]:
        return "id holds white space"
    if _CONTROL.search(id):
        return "id holds a control character"
    return "" if is_unicode(id) else "not valid Unicode"


def _faults(rows: list[Passage]) -> list[str]:
    """Why each passage breaks a rule by itself, or "" if it breaks none."""
    return [""] * len(rows) if _all_sound(rows) else list(map(_passage_fault, rows))


def _all_sound(rows: list[Passage]) -> bool:
    """Whether `_passage_fault` finds nothing in any of the passages, checked together."""
    ids = [row.id for row in rows]
    joined = " ".join(ids)
    if joined.split() != ids or _CONTROL.search(joined) or not all(row.text.strip() for row in rows):
        return False
    return is_unicode("".join(chain.from_iterable(row[:5] for row in rows)))


def _passage_fault(row: Passage) -> str:
    """Why a passage is rejected, or ""."""
    if reason := id_fault(row.id):
        return reason
    if not all(map(is_unicode, (row.title, row.text, row.article_id, row.section))):
        return "not valid Unicode"
    return "" if row.text.strip() else "empty passage"


def _take_query(corpus: CleanCorpus, row: Query) -> None:
    reason = id_fault(row.id)
    if not reason and not is_unicode(row.text):
        reason = "not valid Unicode"
    if not reason and not row.text.strip():
        reason = "empty query"
    if not reason and row.id in corpus.queries:
        same = corpus.queries[row.id].text == row.text
        reason = "duplicate id, same text" if same else "duplicate id, different text"
    if reason:
        reject(corpus, "query", row.id, reason, row.where, row.text)
    else:
        corpus.queries[row.id] = row


def _take_links(corpus: CleanCorpus, links: list[Link]) -> None:
    from_B = corpus.passages.has_articles([row.source for row in links]).tolist()
    to_B = corpus.passages.has_articles([row.target for row in links]).tolist()
    for row, has_source, has_target in zip(links, from_B, to_B):
        content = f"{row.source} -> {row.target}"
        if not has_source:
            reject(corpus, "link", row.source, "source article was not taken", row.where, content)
        elif not has_target:
            reject(corpus, "link", row.source, "points to no article", row.where, content)
        elif row.source != row.target:
            corpus.links[row.source, row.target] = None


def relevance_of(qrel: Qrel) -> int | None:
    """The relevance of a qrel as a number; None if it is not a whole number, or above `MAX_RELEVANCE`."""
    whole = _WHOLE_NUMBER.fullmatch(qrel.relevance.strip())
    relevance = int(whole[1]) if whole else None
    return None if relevance is None or relevance > MAX_RELEVANCE else relevance


def _of_passages(corpus: CleanCorpus, qrels: list[Qrel]) -> list[Qrel]:
    """The qrels, with one for each passage of an article or of a passage that was split; so for `not_prose`."""
    named = [*corpus.not_prose, *(row.passage_id for row in qrels)]
    unknown = dict.fromkeys(id for id, row in zip(named, corpus.passages.rows_of(named).tolist()) if row < 0)
    passages = corpus.passages.of_documents(unknown)
    if not passages:
        return qrels
    for id in corpus.not_prose.keys() & passages.keys():
        corpus.not_prose |= dict.fromkeys(passages[id], corpus.not_prose[id])
    corpus.documents |= {(row.query_id, id): row.passage_id for row in qrels for id in passages.get(row.passage_id, ())}
    return [row._replace(passage_id=id) for row in qrels for id in passages.get(row.passage_id, [row.passage_id])]


def _take_qrels(corpus: CleanCorpus, qrels: list[Qrel]) -> list[tuple[Qrel, int]]:
    """The qrels that are valid by themselves, with their relevance as a number."""
    taken: dict[tuple[str, str, str], tuple[Qrel, int]] = {}
    for row, passage in zip(qrels, corpus.passages.rows_of([row.passage_id for row in qrels]).tolist()):
        key = (row.split, row.query_id, row.passage_id)
        relevance = relevance_of(row)
        if row.query_id not in corpus.queries:
            reason = "points to no query"
        elif passage < 0:
            reason = "points to no passage"
        elif relevance is None:
            reason = NO_WHOLE_NUMBER
        elif relevance < 0:
            reason = "negative relevance"
        elif key in taken:
            reason = "duplicate qrel" if taken[key][1] == relevance else "duplicate qrel, different relevance"
        else:
            taken[key] = (row, relevance)
            continue
        reject_qrel(corpus, row, reason)
    return list(taken.values())


def reject_qrel(corpus: CleanCorpus, row: Qrel, reason: str) -> None:
    reject(corpus, "qrel", row.query_id, reason, row.where, f"{row.query_id} {row.passage_id} {row.relevance}")


def _sound_answers(corpus: CleanCorpus, answers: list[Answer]) -> Iterator[Answer]:
    """The answers that are valid by themselves."""
    for row in answers:
        reason = answer_fault(row.text, row.kind) if is_unicode(row.text) else "not valid Unicode"
        if reason:
            reject(corpus, "answer", row.query_id, reason, row.where, row.text)
        else:
            yield row


def _take_answers(corpus: CleanCorpus, answers: list[Answer], known: Set[str]) -> None:
    """Takes the answers of the accepted queries. Answers of other `known` queries were dropped with their queries."""
    for row in answers:
        if row.query_id in corpus.queries:
            corpus.answers[row.query_id, row.text, row.kind] = None
        elif row.query_id not in known:
            reject(corpus, "answer", row.query_id, "points to no query", row.where, row.text)


def _assign_splits(corpus: CleanCorpus, qrels: list[tuple[Qrel, int]], answers: list[Answer], named: Set[str]) -> None:
    """Assigns one split to every query with a relevant passage, or in test an answer. Drops other queries and qrels.

    Queries that are not `named` by any qrel or answer become the unjudged ones.
    """
    golden = {
        split: {row.query_id for row, relevance in qrels if relevance > 0 and row.split == split}
        for split in PRECEDENCE
    }
    golden["test"] |= {row.query_id for row in answers if row.split == "test"}
    answered = {row.query_id for row in answers}
    fault: dict[str, str] = {}
    held_out: dict[str, str] = {}
    for split in PRECEDENCE:
        texts: dict[str, str] = {}
        for id, query in corpus.queries.items():
            if id not in golden[split] or id in corpus.split_of or id in fault:
                continue
            text = normalise(query.text)
            if text in held_out:
                fault[id] = f"the same text is in {held_out[text]}"
            else:
                corpus.split_of[id] = texts[text] = split
        held_out |= texts
    for row, relevance in qrels:
        own = corpus.split_of.get(row.query_id)
        if own == row.split:
            corpus.qrels.append((row, relevance))
        elif own is not None:
            reject_qrel(corpus, row, f"its query is in {own}")
        elif row.query_id in fault:
            reject_qrel(corpus, row, f"its query: {fault[row.query_id]}")
        else:
            reject_qrel(corpus, row, "its query has no relevant passage")
    for id in [id for id in corpus.queries if id not in corpus.split_of]:
        query = corpus.queries.pop(id)
        if id in answered and id not in fault:
            corpus.left_out["query: answers without a relevant passage, outside test"] += 1
        elif id not in named and (text := normalise(query.text)) in held_out:
            corpus.left_out["query: without labels, and its text stands there already"] += 1
        elif id not in named:
            corpus.unjudged[id], held_out[text] = query, "unjudged"
        else:
            reject(corpus, "query", id, fault.get(id, "no relevant passage"), query.where, query.text)
