"""The loss against an index's vectors: its equation in float64, cases by hand, and where gradients flow."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from stillhouse.corpus.store import Corpus
from stillhouse.search.vector_index import VectorIndex, cut
from stillhouse.training import fixed_passages
from stillhouse.training.fixed_passages import FixedPassages, cut_to_index, fixed_passages_loss

CPU = torch.device("cpu")


def slow_loss(scores_BN: list[list[float]], right: list[set[int]], never: list[set[int]]) -> float:
    """Compute the loss one query and one right answer at a time."""
    total = 0.0
    for scores, answers, skipped in zip(scores_BN, right, never):
        below = sum(math.exp(score) for column, score in enumerate(scores) if column not in skipped)
        own = [-math.log(math.exp(scores[column]) / (math.exp(scores[column]) + below)) for column in answers]
        total += sum(own) / len(own)
    return total / len(scores_BN)


def pairs(sets: list[set[int]]) -> fixed_passages.Pairs:
    found = [(query, column) for query, columns in enumerate(sets) for column in sorted(columns)]
    return tuple(np.array(part, dtype=np.int64) for part in zip(*found))  # type: ignore[return-value]


def test_the_loss_is_its_equation() -> None:
    right = [{0}, {2, 5}, {1, 3, 4}]
    never = [{0, 6}, {2, 5}, {0, 1, 3, 4}]
    scores = 3 * torch.randn(3, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    scores.requires_grad_()
    loss = fixed_passages_loss(scores, pairs(right), pairs(never))
    assert loss.item() == pytest.approx(slow_loss(scores.tolist(), right, never), abs=1e-12)
    loss.backward()
    for query, column in np.ndindex(3, 8):
        moved = [scores.tolist() for _ in range(2)]
        moved[0][query][column] += 1e-6
        moved[1][query][column] -= 1e-6
        slope = (slow_loss(moved[0], right, never) - slow_loss(moved[1], right, never)) / 2e-6
        assert scores.grad[query, column].item() == pytest.approx(slope, abs=1e-8)


def test_queries_are_cut_as_the_index_cuts_vectors() -> None:
    vectors = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)
    for normalize in (True, False):
        made = cut_to_index(torch.from_numpy(vectors), 3, normalize)
        np.testing.assert_allclose(made, cut(vectors, 3, normalize), rtol=1e-6)


def test_a_sample_holds_the_right_answers_and_what_it_is_asked_to(
    run_step: Callable[..., dict[str, Path]], small_corpus: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fixed_passages, "RUN", 5)
    encoder = run_step("fetch-model", {}, model=str(tiny_model), pooling="mean", query_length=16, passage_length=24)[
        "encoder"
    ]
    found = run_step("index", {"corpus": small_corpus, "retriever": encoder}, precision="fp32")
    index, corpus = VectorIndex(found["index"]), Corpus.open(small_corpus)
    ids = [f"q{number}" for number in range(24)]
    asked = np.array([3, 20])
    seen = set[int]()
    for step in range(12):
        part = FixedPassages(index, corpus, ids, 10, 0, CPU).targets(asked, step, np.array([[7, 11]]))
        assert {3, 20, 7, 11} <= set(part.rows_N.tolist()) and 10 <= len(part.rows_N) < 24
        assert part.rows_N[part.right[1]].tolist() == [3, 20] and part.right[0].tolist() == [0, 1]
        np.testing.assert_array_equal(part.vectors_ND.numpy(), index.vectors(part.rows_N.astype(np.int32)))
        assert part.columns(np.array([11, 7])).tolist() == [
            part.rows_N.tolist().index(11),
            part.rows_N.tolist().index(7),
        ]
        seen |= set(part.rows_N.tolist())
    assert len(seen) == 24, "in time every passage is a negative"
    whole = FixedPassages(index, corpus, ids, 24, 0, CPU).targets(asked, 0)
    np.testing.assert_array_equal(whole.vectors_ND.numpy(), index.vectors(np.arange(24, dtype=np.int32)))
    assert whole.right[1].tolist() == [3, 20] and not whole.vectors_ND.requires_grad
