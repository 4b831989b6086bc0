"""Drift is rarely reported when there is none, and it is found when users ask about other topics."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving_releases import running
from test_swapped_releases import point

from stillhouse.serving import drift_watch
from stillhouse.serving.drift_watch import SURE, query_shift, score_shift

WIDTH = 48


def questions(random: np.random.Generator, count: int, topics: Sequence[int]) -> np.ndarray:
    """Unit vectors about some topics, which spread as widely as the topics are apart; float32 [count, WIDTH]."""
    centres = np.random.default_rng(99).standard_normal((20, WIDTH))
    made = centres[random.choice(topics, count)] + random.standard_normal((count, WIDTH))
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def test_false_alarms_are_as_seldom_as_the_p_value_says() -> None:
    """Of 150 pairs of samples of one population, a correct test finds about 5 % different at 0.05."""
    random = np.random.default_rng(1)
    queries = scores = 0
    for seed in range(150):
        both = questions(random, 350, range(10))
        best = random.beta(5, 2, 350).astype(np.float32)
        queries += query_shift(both[:250], both[250:], seed).p < 0.05
        scores += score_shift(best[:250], best[250:]).p < 0.05
    assert queries <= 16 and scores <= 16  # 7.5 and three standard deviations


def test_the_reference_s_own_questions_raise_no_alarm() -> None:
    random = np.random.default_rng(2)
    reference = questions(random, 250, range(10))
    alarms = sum(query_shift(reference, reference[random.choice(250, 120, False)], seed).sure for seed in range(40))
    assert alarms == 0


@pytest.mark.parametrize("share", [1.0, 0.7])
def test_other_topics_are_detected(share: float) -> None:
    """All or part of the questions are about topics that the reference lacks."""
    random = np.random.default_rng(3)
    reference = questions(random, 250, range(10))
    for seed in range(10):
        new = round(300 * share)
        asked = np.concatenate([questions(random, new, range(10, 13)), questions(random, 300 - new, range(10))])
        found = query_shift(reference, asked, seed)
        assert found.p < SURE and found.statistic > 0.15


def test_lower_scores_are_detected() -> None:
    random = np.random.default_rng(4)
    reference = random.normal(0.6, 0.1, 200).astype(np.float32)
    assert score_shift(reference, random.normal(0.5, 0.1, 200).astype(np.float32)).sure
    # By hand: all values of the one and none of the other are below 2.5.
    assert score_shift(np.array([1, 2], np.float32), np.array([3, 4], np.float32)).statistic == 1


def test_a_service_says_whether_its_questions_drift(two_releases: list[Path], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(drift_watch, "LEAST", 6)  # the tests' releases have six different questions
    link = tmp_path / "in-use"
    point(link, two_releases[0])
    with running(link, watch=0.02) as service:
        watch = service.service.drift
        assert watch
        own = service.service.shelf.current.own_queries(100)
        assert len(own) == 12
        watch.look()
        assert "0 different questions" in service.client.get("/info").json()["drift"]["sentence"]
        assert "stillhouse_serving_query_drift NaN" in service.client.get("/metrics").text
        service.search(queries=own)
        service.search(queries=own * 3)  # repeated questions add nothing
        watch.look()
        alike = service.client.get("/info").json()["drift"]
        assert alike["asked"] == alike["reference"] == 6 and alike["queries"] == alike["scores"] == {
            "statistic": 0,
            "p": 1,
        }
        assert alike["sentence"].endswith("look like those of the release's test queries")
        before = len(watch._asked)
        service.search(queries=own, bm25=0)  # scores of other rankings, or with a filter, do not count
        service.search(queries=own, filter={"id_prefix": "x/"})
        assert len(watch._asked) == before
        others = [" ".join(words) for words in product(("sings", "blue", "grows", "of"), repeat=4)][:200]
        service.search(queries=others)
        watch.look()
        apart = service.client.get("/info").json()["drift"]
        assert apart["asked"] == 206 and "differ" in apart["sentence"] and apart["queries"]["p"] < SURE
        shown = service.client.get("/metrics").text.splitlines()
        lines = dict(line.split() for line in shown if line.startswith("stillhouse_serving"))
        for name, kind, figure in (
            ("query_drift", "queries", "statistic"),
            ("query_drift_p", "queries", "p"),
            ("score_drift", "scores", "statistic"),
            ("score_drift_p", "scores", "p"),
        ):
            assert float(lines[f"stillhouse_serving_{name}"]) == pytest.approx(apart[kind][figure])
        # Another model's vectors and scores are never compared with these.
        point(link, two_releases[1])
        service.service.shelf.look()
        watch.look()
        assert service.client.get("/info").json()["drift"]["asked"] == 0


def test_a_failing_drift_check_costs_no_answer(two_releases: list[Path]) -> None:
    """The check is repeated, although it fails each time."""
    failures: queue.Queue[str] = queue.Queue()
    with running(two_releases[0]) as service:
        watch = drift_watch.DriftWatch(lambda: 1 / 0, service.service.batcher.submit, failures.put, every=0.01)  # type: ignore[arg-type, return-value]
        watch.start()
        for _ in range(2):
            assert "could not be measured: ZeroDivisionError" in failures.get(timeout=30)
            assert service.search(query="tree")["answers"]
        watch.end()
