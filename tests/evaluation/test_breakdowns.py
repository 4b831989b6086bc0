"""Breakdowns of figures by kind of query, and comparisons of two systems query by query."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from stillhouse.core.artifacts import whole_folder, write_manifest
from stillhouse.corpus.store import Corpus, write_tables
from stillhouse.evaluation.breakdowns import Breakdown, breakdowns, breakdowns_json
from stillhouse.evaluation.figures import Measured
from stillhouse.evaluation.report.examples import BARS, differences_part, sorted_bars

# Relevant passages of six test queries. No train query asks for p0, one asks for p1, six for p2. p3 shares p2's
# article.
GOLD = {"t0": ["p0"], "t1": ["p1"], "t2": ["p2"], "t3": ["p3"], "t4": ["p0", "p1"], "t5": ["p2"]}
TEXT = {"t0": "人", "t1": "人口", "t2": "a b c", "t3": "a b c", "t4": "a  b\tc", "t5": "a b c d e f g"}
RECALL = {"t0": 1.0, "t1": 0.0, "t2": 1.0, "t3": 0.0, "t4": 0.5, "t5": 1.0}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("breakdowns") / "corpus"
    train = {f"r{i}": ["p2"] for i in range(6)} | {"r6": ["p1"], "r7": ["p1"]}
    pairs = [(query, passage, "train") for query, of in train.items() for passage in of]
    pairs += [(query, passage, "test") for query, of in GOLD.items() for passage in of]
    relevance = [0 if query == "r7" else 1 for query, _, _ in pairs]
    ids = [*train, *GOLD]
    passages = ["p0", "p1", "p2", "p3"]
    with whole_folder(folder) as staging:
        write_tables(
            staging,
            {
                "passages": {
                    "passage_id": passages,
                    "title": [""] * 4,
                    "text": [f"text of {name}" for name in passages],
                    "article_id": ["x", "y", "z", "z"],
                    "section": [""] * 4,
                    "position": [0, 0, 0, 1],
                },
                "queries": {
                    "query_id": ids,
                    "text": [TEXT.get(query, query) for query in ids],
                    "split": ["train"] * len(train) + ["test"] * len(GOLD),
                },
                "qrels": {
                    "query_id": [query for query, _, _ in pairs],
                    "passage_id": [passage for _, passage, _ in pairs],
                    "relevance": relevance,
                    "split": [split for _, _, split in pairs],
                },
            },
        )
        write_manifest(staging, "ingest", {}, {}, {})
    return Corpus.open(folder)


def measured(*, unjudged: tuple[str, ...] = ()) -> Measured:
    index = pd.Index(list(GOLD), name="query_id")
    base = pd.DataFrame({"RR@10": [0.5, 0.0, 1.0, 0.25, 0.0, 1.0], "R@50": list(RECALL.values())}, index=index)
    base.loc[list(unjudged)] = np.nan
    other = base.assign(**{"RR@10": base["RR@10"].to_numpy()[[1, 0, 2, 3, 5, 4]]})
    run = pd.DataFrame({"query_id": ["t0", "t1"], "passage_id": ["p3", "p1"], "rank": [1, 1]})
    return Measured(
        "test", {"bm25": run, "distilled": run.assign(passage_id=["p0", "p2"])}, {"bm25": base, "distilled": other}
    )


def bins(part: Breakdown, system: str = "bm25") -> dict[str, tuple[int, float]]:
    return {of.label: (of.queries, of.figures[system][0]) for of in part.bins}


def test_recall_by_length_and_by_training_frequency(corpus: Corpus) -> None:
    length, passage, article = breakdowns(corpus, measured(), 100, 1)
    assert {part.measure for part in (length, passage, article)} == {"R@50"}
    assert bins(length) == {"1–2": (2, 0.5), "3": (3, 0.5), "4–7": (1, 1.0)}
    # A train qrel of relevance 0 does not count; of two relevant passages, the one with more train queries counts.
    assert bins(passage) == {"0": (2, 0.5), "1": (2, 0.25), "5 or more": (2, 1.0)}
    assert bins(article) == {"0": (1, 1.0), "1": (2, 0.25), "5 or more": (3, pytest.approx(2 / 3))}
    for part in (length, passage, article):
        for of in part.bins:
            mean, low, high = of.figures["distilled"]
            assert low <= mean <= high
    written = breakdowns_json([length])["query_length"]
    assert written["bins"][1]["systems"]["bm25"]["mean"] == 0.5 and written["measure"] == "R@50"


def test_two_systems_query_by_query(corpus: Corpus) -> None:
    part = differences_part(corpus, measured(), "distilled", "bm25", 5, ("distilled", "BM25"))
    assert (part["better"], part["worse"], part["same"], part["queries"]) == (2, 2, 2, 6)
    # RR@10: t4 +1, t1 +0.5, t5 -1, t0 -0.5. The largest come first, each with the top passage of both systems.
    assert [example.query for example in part["gained"]] == [TEXT["t4"], TEXT["t1"]]
    assert [example.query for example in part["lost"]] == [TEXT["t5"], TEXT["t0"]]
    before, after = part["gained"][1].answers
    assert (before.system, before.right, after.right, after.gold_rank) == ("bm25", True, False, 0)
    assert [answer.first is None for answer in part["gained"][0].answers] == [True, True]


@pytest.mark.parametrize("queries", [1, 7, BARS, BARS + 1, 5 * BARS])
def test_bars_are_sorted_and_keep_the_mean(queries: int) -> None:
    gains = np.random.default_rng(queries).normal(size=queries)
    bars, most = sorted_bars(gains)
    assert len(bars) == min(queries, BARS) and (np.diff(bars) <= 0).all()
    assert most == -(-queries // BARS)
    if queries % len(bars) == 0:
        assert bars.mean() == pytest.approx(gains.mean())
