"""The best available teacher is chosen on dev queries; its measures are compared with ones computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from stillhouse.training.teacher import BM25, CROSS_ENCODER, FUSED, RETRIEVER, Pairs, choose_teacher


def pairs_of(scores: dict[str, list[list[float]]], positives: list[int]) -> Pairs:
    """Build pairs from the scores of each query's candidates and the place of its positive."""
    widths = [len(row) for row in next(iter(scores.values()))]
    query_N = np.repeat(np.arange(len(widths)), widths)
    positive_N = np.concatenate([np.arange(width) == place for width, place in zip(widths, positives)])
    columns = [np.concatenate(rows) for rows in scores.values()]
    return Pairs(query_N, positive_N, list(scores), np.stack(columns, axis=1).astype(np.float32))


def test_reciprocal_ranks_by_hand() -> None:
    """The positives rank 1, 2 and, tied with two others, 3. The second query has fewer candidates."""
    found = choose_teacher(
        pairs_of({BM25: [[3, 1, 2], [1, 2], [5, 5, 5]], RETRIEVER: [[1, 2, 3], [1, 2], [9, 1, 2]]}, [0, 0, 0])
    )
    assert found.reciprocal_ranks[BM25] == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)
    assert found.reciprocal_ranks[RETRIEVER] == pytest.approx((1 / 3 + 1 / 2 + 1) / 3)
    assert found.queries == 3


def test_complementary_scores_make_the_fusion_the_teacher() -> None:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(60, 12))
    positives = truth.argmax(axis=1).tolist()
    noise = rng.normal(size=truth.shape)
    scores = {BM25: (10 * (truth + noise)).tolist(), RETRIEVER: (0.1 * (truth - noise)).tolist()}
    found = choose_teacher(pairs_of(scores, positives))
    assert found.chosen == FUSED and found.ahead
    assert found.reciprocal_ranks[FUSED] > max(found.reciprocal_ranks[BM25], found.reciprocal_ranks[RETRIEVER]) + 0.2
    # The noise cancels when both contribute equally.
    assert 10 * found.weights[BM25] == pytest.approx(0.1 * found.weights[RETRIEVER], rel=0.3)


def test_a_noisy_teacher_is_not_ahead() -> None:
    rng = np.random.default_rng(1)
    positives = rng.integers(8, size=50).tolist()
    student = rng.normal(size=(50, 8))
    student[np.arange(50), positives] += 2.5
    found = choose_teacher(
        pairs_of({CROSS_ENCODER: rng.normal(size=(50, 8)).tolist(), RETRIEVER: student.tolist()}, positives)
    )
    assert found.reciprocal_ranks[CROSS_ENCODER] < found.reciprocal_ranks[RETRIEVER] - 0.2
    assert not found.one_kind(CROSS_ENCODER).ahead
    # The fusion gives noise next to no weight, so it can only be as good as the student.
    assert found.reciprocal_ranks[FUSED] == pytest.approx(found.reciprocal_ranks[RETRIEVER], abs=0.03)


def test_scores_that_make_positives_unlikely_rank_as_they_are_and_are_never_ahead() -> None:
    """The cross-encoder ranks the positive second of three, far below the first: the best weight of its score is 0."""
    scores = {CROSS_ENCODER: [[5.0, 9.0, 4.9]] * 6, RETRIEVER: [[1.0, 1.1, 1.2]] * 6}
    found = choose_teacher(pairs_of(scores, [0] * 6))
    assert found.reciprocal_ranks[CROSS_ENCODER] == 1 / 2 and found.reciprocal_ranks[RETRIEVER] == 1 / 3
    assert not any(found.weights.values()) and not found.ahead, "a sum without weights teaches nothing"
    assert found.one_kind(CROSS_ENCODER).ahead, "its raw scores do"


def test_the_student_is_never_its_own_teacher() -> None:
    """This holds even where nothing ranks better."""
    perfect = [[9.0, 1.0, 2.0]] * 10
    found = choose_teacher(pairs_of({BM25: [[1.0, 2.0, 3.0]] * 10, RETRIEVER: perfect}, [0] * 10))
    assert found.chosen in (BM25, FUSED) and not found.ahead


def test_scores_are_the_weighted_sum_of_every_pair() -> None:
    pairs = pairs_of({BM25: [[3, 1, 2], [1, 2, 7]], RETRIEVER: [[1, 0, 3], [1, 2, 0]]}, [0, 2])
    found = choose_teacher(pairs)
    expected = [
        sum(found.weights.get(kind, 0.0) * float(x) for kind, x in zip(pairs.kinds, row)) for row in pairs.scores_NF
    ]
    assert found.scores(pairs) == pytest.approx(np.array(expected), rel=1e-5)
