"""Drawing dev queries and samples: sizes, disjointness, and dependence on the seed."""

from __future__ import annotations

import pytest

from stillhouse.corpus.cleaning import CleanCorpus, clean, normalise
from stillhouse.corpus.sources.rows import Answer, Link, Passage, Qrel, Query, Row
from stillhouse.corpus.splitting import draw_dev, draw_test, sample_articles, sample_queries


def labelled(train: int, dev: int = 0, test: int = 0, texts: int = 10**6) -> CleanCorpus:
    """A corpus of one passage; train queries share `texts` different texts."""
    rows: list[Row] = [Passage("p", "", "text", "p", "", 0, "c:1")]
    sizes = {"train": train, "dev": dev, "test": test}
    rows += [
        Query(f"{split}{i}", f"{split} {i % texts if split == 'train' else i}", "q:1")
        for split, n in sizes.items()
        for i in range(n)
    ]
    rows += [Qrel(f"{split}{i}", "p", "1", split, "r:1") for split, n in sizes.items() for i in range(n)]
    return clean(rows)


def of(corpus: CleanCorpus, split: str) -> set[str]:
    return {id for id, own in corpus.split_of.items() if own == split}


@pytest.mark.parametrize(
    ("train", "dev", "fraction", "drawn"),
    [
        (100, 0, 0.1, 10),
        (100, 0, 0.0, 0),
        (100, 5, 0.1, 0),
        (3, 0, 0.1, 1),
        (1, 0, 0.9, 0),
        (0, 0, 0.5, 0),
        (2, 0, 0.9, 1),
    ],
)
def test_dev_is_drawn_where_there_is_none(train: int, dev: int, fraction: float, drawn: int) -> None:
    corpus = labelled(train, dev, test=4)
    assert draw_dev(corpus, fraction, seed=1) == drawn
    assert (len(of(corpus, "train")), len(of(corpus, "dev")), len(of(corpus, "test"))) == (
        train - drawn,
        dev + drawn,
        4,
    )
    assert all(row.split == corpus.split_of[row.query_id] for row, _ in corpus.qrels)


def test_queries_of_one_text_stay_together() -> None:
    corpus = labelled(60, texts=20)
    assert draw_dev(corpus, 0.25, seed=3) == 15
    texts = {split: {normalise(corpus.queries[id].text) for id in of(corpus, split)} for split in ("train", "dev")}
    assert not texts["train"] & texts["dev"]


def test_samples_have_the_requested_size_and_depend_on_the_seed() -> None:
    def sampled(seed: int) -> tuple[dict[str, int], set[str]]:
        corpus = labelled(50, dev=8, test=30)
        left = sample_queries(corpus, {"train": 20, "dev": 8, "test": 0}, seed)
        assert {row.query_id for row, _ in corpus.qrels} == set(corpus.queries) == set(corpus.split_of)
        assert (len(of(corpus, "dev")), len(of(corpus, "test"))) == (8, 30)
        return left, of(corpus, "train")

    left, kept = sampled(7)
    assert left == {"train": 30}
    assert len(kept) == 20
    assert sampled(7) == (left, kept)
    assert sampled(8)[1] != kept


def test_dropping_articles_drops_their_queries_and_links() -> None:
    rows: list[Row] = [Passage(f"p{i}", "", f"text {i}", f"a{i % 4}", "", i // 4, f"c:{i}") for i in range(8)]
    rows += [Link(f"a{i}", f"a{j}", "l:1") for i in range(4) for j in range(4) if i != j]
    rows += [Query(f"q{i}", f"question {i}", "q:1") for i in range(8)]
    rows += [Qrel(f"q{i}", f"p{i}", "1", "train" if i < 4 else "test", "r:1") for i in range(8)]
    corpus = clean(rows)
    assert sample_articles(corpus, 9, seed=1) == {} and len(corpus.passages) == 8
    left = sample_articles(corpus, 3, seed=1)
    kept = {row.article_id for row in corpus.passages.values()}
    assert len(kept) == 3 and len(corpus.passages) == 6 and left == {"train": 1, "test": 1}
    assert len(corpus.links) == 6 and all(set(link) <= kept for link in corpus.links)
    assert {row.passage_id for row, _ in corpus.qrels} == set(corpus.passages)
    assert set(corpus.queries) == set(corpus.split_of) == {row.query_id for row, _ in corpus.qrels}


def test_a_sample_keeps_test_queries_that_only_have_answers() -> None:
    """Such queries, as in DPR's test files, are evaluated by the answers in the passages that are found."""
    rows: list[Row] = [Passage(f"p{i}", "", f"text {i}", f"a{i}", "", 0, f"c:{i}") for i in range(8)]
    rows += [Query(f"q{i}", f"question {i}", "q:1") for i in range(10)]
    rows += [Qrel(f"q{i}", f"p{i}", "1", "train", "r:1") for i in range(8)]
    rows += [Answer(f"q{i}", "text", "text", "train" if i < 8 else "test", "s:1") for i in range(10)]
    corpus = clean(rows)
    assert sample_articles(corpus, 3, seed=1) == {"train": 5}
    assert of(corpus, "test") == {"q8", "q9"} and len(of(corpus, "train")) == 3


@pytest.mark.parametrize(("train", "dev", "test"), [(200, 0, 0), (2, 0, 0), (1, 0, 0), (50, 1, 0), (50, 0, 1)])
def test_test_is_drawn_where_there_are_only_train_queries(train: int, dev: int, test: int) -> None:
    corpus = labelled(train, dev, test)
    drawn = draw_test(corpus, 0.2, seed=1)
    least, most = (0, 0) if dev or test or train < 2 else (1, 1) if train == 2 else (20, 60)
    assert least <= drawn <= most
    assert (len(of(corpus, "train")), len(of(corpus, "test"))) == (train - drawn, test + drawn)
    assert all(row.split == corpus.split_of[row.query_id] for row, _ in corpus.qrels)


def test_no_train_query_becomes_a_test_query_as_a_source_grows() -> None:
    small, large = labelled(100), labelled(300)
    for corpus in (small, large):
        draw_test(corpus, 0.2, seed=1)
    assert of(small, "train") <= of(large, "train") and of(small, "test") <= of(large, "test")
