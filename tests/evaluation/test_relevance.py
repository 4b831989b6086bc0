"""Which passages may never be negatives: cases by hand, with repeated texts."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from stillhouse.corpus.store import Corpus, write_tables
from stillhouse.evaluation.relevance import never_negative

PASSAGES = {"a": "red bird", "b": "blue fish", "twin of a": "red bird", "c": "green tree"}
QUERIES = {"q1": "Which bird?", "q2": "which  BIRD?", "q3": "which fish?", "q4": "which tree?"}
QRELS = [("q1", "a", 1), ("q2", "c", 1), ("q3", "b", 1), ("q3", "a", 0), ("q4", "c", 2)]


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    empty = [""] * 4
    passages = {"passage_id": list(PASSAGES), "title": empty, "text": list(PASSAGES.values())}
    passages |= {"article_id": empty, "section": empty, "position": [0] * 4}
    queries = {"query_id": list(QUERIES), "text": list(QUERIES.values()), "split": ["train"] * 4}
    columns = dict(zip(("query_id", "passage_id", "relevance"), map(list, zip(*QRELS))))
    write_tables(tmp_path, {"passages": passages, "queries": queries, "qrels": columns | {"split": ["train"] * 5}})
    return Corpus.open(tmp_path)


def test_equal_questions_share_their_answers_and_equal_passages_are_one_answer(corpus: Corpus) -> None:
    offsets, rows = never_negative(corpus, ["q3", "q1", "q2", "unknown", "q4"])
    # q3: b. q1 and q2 ask the same: a, its twin and c. Relevance 0 is no answer.
    assert offsets.tolist() == [0, 1, 4, 7, 7, 8]
    assert rows.tolist() == [1, 0, 2, 3, 0, 2, 3, 3]


@pytest.mark.parametrize(
    ("task", "taken_from", "expected"),
    [
        ("ict", "b", [1, 3]),  # its own passage and the relevant one
        ("ict", "a", [0, 2, 3]),  # the twin of its own passage too
        ("bfs", "d", [3, 4, 5]),  # all passages of the article
        ("wlp", "b", [1, 3, 4, 5]),  # those of both articles
        ("source", "", [3]),
    ],
)
def test_a_made_query_has_its_own_passage_and_its_articles_as_no_negatives(
    task: str, taken_from: str, expected: list[int], tmp_path: Path
) -> None:
    passages = {"passage_id": ["a", "b", "twin of a", "c", "d", "e"], "title": [""] * 6, "section": [""] * 6}
    passages |= {"text": [*PASSAGES.values(), "tall tree", "old tree"], "position": [0] * 6}
    passages |= {"article_id": ["a", "b", "twin of a", "trees", "trees", "trees"]}
    queries = {"query_id": ["q"], "text": ["It grows."], "origin": [task], "taken_from": [taken_from]}
    qrels = {"query_id": ["q"], "passage_id": ["c"], "relevance": [1], "split": ["train"]}
    write_tables(tmp_path, {"passages": passages, "queries": queries | {"split": ["train"]}, "qrels": qrels})
    offsets, rows = never_negative(Corpus.open(tmp_path), ["q"])
    assert rows.tolist() == expected and offsets.tolist() == [0, len(expected)]


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    """The digests and numbers of 200,000 passages would take over ten megabytes; a block of texts takes less."""
    count = 200_000
    empty = [""] * count
    passages = {"passage_id": [f"p{n}" for n in range(count)], "title": empty, "text": [f"{n}" for n in range(count)]}
    passages |= {"article_id": empty, "section": empty, "position": [0] * count}
    passages["text"][77] = passages["text"][-1]
    queries = {"query_id": ["q"], "text": ["which?"], "split": ["train"]}
    qrels = {"query_id": ["q"], "passage_id": ["p77"], "relevance": [1], "split": ["train"]}
    write_tables(tmp_path, {"passages": passages, "queries": queries, "qrels": qrels})
    corpus = Corpus.open(tmp_path)
    tracemalloc.start()
    try:
        found = never_negative(corpus, ["q"])[1].tolist()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found == [77, count - 1]
    assert peak < 8e6, peak
