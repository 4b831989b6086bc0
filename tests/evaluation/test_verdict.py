"""Which challengers may be released: a table of made-up values, and the step on hand-made runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stillhouse.core.artifacts import read_manifest, whole_folder, write_manifest
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.release_rule import Rule
from stillhouse.evaluation.verdict import IndexRecalls, judge

RULE = Rule(most_loss=0.1, least_queries=4, bootstrap_samples=200, randomisation_samples=2000, seed=0)
SAME = [1.0, 0.5, 0.0, 1.0, 0.5, 1.0, 0.0, 0.5, 1.0, 0.0]
CASES = {
    # champion's values, challenger's values, accepted, what the reason says
    "equal": (SAME, SAME, True, "is not worse: RR@10 0.5500 against 0.5500 on 10 test queries"),
    "better everywhere": ([0.2] * 10, [0.7] * 10, True, "is better"),
    "worse everywhere": ([0.7] * 10, [0.2] * 10, False, "is worse: .* p = 0.00"),
    # One of ten values falls by 0.9, so the mean falls by 0.09: not significant, and less than most_loss.
    "worse by little": ([1.0] * 10, [0.1] + [1.0] * 9, True, r"is not worse: .*difference -0\.0900"),
    # Two values lower the mean by 0.2: p = 0.5 is not significant, but the loss is larger than allowed.
    "worse by much in few": ([1.0] * 10, [0.0, 0.0] + [1.0] * 8, False, "loses more than most_loss = 0.1"),
    "too few queries": ([0.0] * 3, [1.0] * 3, False, "too few test queries to compare on: 3"),
}


@pytest.mark.parametrize("case", CASES)
def test_verdict(case: str) -> None:
    champion, challenger, accepted, reason = CASES[case]
    verdict = judge(np.array(champion), np.array(challenger), RULE)
    assert verdict.accepted == accepted
    assert re.search(reason, verdict.reason), verdict.reason
    assert verdict.plain()["difference"] == pytest.approx(np.mean(challenger) - np.mean(champion), abs=1e-6)


def test_a_worse_retriever_is_almost_never_accepted_by_chance() -> None:
    """Of 80 challengers that lose 0.1 on average over 200 queries, nearly all are refused; of equal ones, few."""
    rng = np.random.default_rng(0)
    rule = Rule(most_loss=1.0, bootstrap_samples=100, randomisation_samples=500, seed=0)
    refused = dict.fromkeys((0.0, 0.1), 0)
    for shift in refused:
        for _ in range(80):
            champion = rng.normal(0.5, 0.3, 200)
            refused[shift] += not judge(champion, champion + rng.normal(-shift, 0.3, 200), rule).accepted
    assert refused[0.1] > 76 and refused[0.0] < 8, refused


@pytest.mark.parametrize(("found", "accepted"), [(0.85, True), (0.79, False)])
def test_a_new_index_may_not_lose_what_exact_search_finds(found: float, accepted: bool) -> None:
    recalls = IndexRecalls(10, champion=0.9, challenger=found)
    verdict = judge(np.zeros(2), np.zeros(2), RULE, same=True, recalls=recalls)
    assert verdict.accepted == accepted
    assert ("loses more than most_loss = 0.1" in verdict.reason) != accepted
    assert f"recall@10 of exact search {found:.4f} against 0.9000" in verdict.reason


def run_of(folder: Path, corpus: Path, retriever: str, hits: int, digest: str = "") -> Path:
    """A run in which the first `hits` test queries find their passage at rank 1 and the others do not."""
    opened = Corpus.open(corpus)
    qrels = opened.qrels_of("test")
    lines = []
    for number, (query, passage) in enumerate(zip(qrels["query_id"], qrels["passage_id"])):
        other = next(name for name in opened.passages["passage_id"] if name != passage)
        lines.append(f"{query} Q0 {passage if number < hits else other} 1 1.0 {retriever}\n")
    with whole_folder(folder) as staging:
        (staging / "test.trec").write_text("".join(lines))
        inputs = {"corpus": digest or read_manifest(corpus).digest, "retriever": retriever}
        write_manifest(staging, "retrieve", {}, inputs, {})
    return folder


@pytest.mark.parametrize(("hits", "accepted"), [(6, True), (4, True), (0, False)])
def test_the_step_compares_runs(
    hits: int, accepted: bool, small_corpus: Path, tmp_path: Path, run_step: Callable[..., dict[str, Path]]
) -> None:
    runs = {
        "champion": run_of(tmp_path / "champion", small_corpus, "old", 5),
        "challenger": run_of(tmp_path / "challenger", small_corpus, "new", hits),
    }
    made = run_step("compare-release", {"corpus": small_corpus, **runs}, most_loss=0.2)["verdict"]
    verdict = json.loads((made / "verdict.json").read_text())
    assert verdict == read_manifest(made).facts
    assert verdict["accepted"] == accepted and verdict["queries"] == 6
    assert (verdict["champion"], verdict["challenger"]) == pytest.approx((5 / 6, hits / 6), abs=1e-5)


def test_runs_of_another_corpus_are_refused(
    small_corpus: Path, tmp_path: Path, run_step: Callable[..., dict[str, Path]]
) -> None:
    runs = {
        "champion": run_of(tmp_path / "champion", small_corpus, "old", 5, digest="another"),
        "challenger": run_of(tmp_path / "challenger", small_corpus, "new", 5),
    }
    with pytest.raises(InputError, match="--champion was made from another corpus"):
        run_step("compare-release", {"corpus": small_corpus, **runs})
