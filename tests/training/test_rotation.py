"""Drawing in turns: nothing comes again before everything has come once, in any order and for any caller."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stillhouse.training.rotation import NEGATIVES, POSITIVES, first_turn, keys, turn


@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=4), st.integers(1, 8))
def test_turns_are_consecutive_slices_of_a_repeated_order(allowed: list[list[bool]], count: int) -> None:
    """Compares with a loop: the turns of a query, laid end to end, repeat one order of its allowed columns."""
    allowed_BC = np.array(allowed)
    queries_B = np.arange(len(allowed)) + 7
    turns = [
        turn(allowed_BC, queries_B, np.full(len(allowed), time), count, seed=3, stream=NEGATIVES) for time in range(9)
    ]
    for place, row in enumerate(allowed_BC):
        taken = [columns[place][filled[place]].tolist() for columns, filled in turns]
        available = set(np.flatnonzero(row))
        if len(available) <= count:
            assert all(set(columns) == available and columns == taken[0] for columns in taken)
            continue
        laid = [column for columns in taken for column in columns]
        assert len(laid) == 9 * count
        first_round = laid[: len(available)]
        assert set(first_round) == available
        assert laid == [first_round[n % len(available)] for n in range(len(laid))]


def test_orders_differ_by_seed_stream_and_query_and_are_uniform() -> None:
    columns = np.arange(200)
    one = keys(1, NEGATIVES, np.arange(300), columns)
    assert len(np.unique(one)) == one.size
    assert not (one == keys(2, NEGATIVES, np.arange(300), columns)).any()
    assert not (one == keys(1, POSITIVES, np.arange(300), columns)).any()
    assert np.array_equal(one[17:18, :50], keys(1, NEGATIVES, np.array([17]), columns[:50]))
    places = np.argsort(np.argsort(one, axis=1), axis=1)
    # The mean place of a column over 300 orders: 99.5 with a standard error of 3.3.
    assert np.abs(places.mean(axis=0) - 99.5).max() < 5 * 3.34
    assert abs(np.corrcoef(places[:-1].ravel(), places[1:].ravel())[0, 1]) < 0.02


def test_first_turn_allows_exactly_what_a_first_round_draws() -> None:
    allowed_QC = np.random.default_rng(0).random((50, 12)) < 0.8
    queries_Q = np.arange(50)
    chosen_QC = first_turn(allowed_QC, queries_Q, 6, seed=5)
    assert (chosen_QC <= allowed_QC).all()
    assert chosen_QC.sum(axis=1).tolist() == np.minimum(allowed_QC.sum(axis=1), 6).tolist()
    read_QC = np.zeros_like(chosen_QC)
    for time in range(3):
        columns, filled = turn(chosen_QC, queries_Q, np.full(50, time), 2, seed=5, stream=NEGATIVES)
        among_all, _ = turn(allowed_QC, queries_Q, np.full(50, time), 2, seed=5, stream=NEGATIVES)
        full = allowed_QC.sum(axis=1) >= 6
        assert np.array_equal(columns[full], among_all[full])
        read_QC[np.repeat(queries_Q, 2)[filled.ravel()], columns[filled]] = True
    assert np.array_equal(read_QC, chosen_QC)
