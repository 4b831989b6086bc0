"""The section of the report that compares systems begins with what a run achieved over its start."""

from __future__ import annotations

import pytest

from stillhouse.evaluation.report.page import compared_rows
from stillhouse.evaluation.significance import compared_pairs

SYSTEMS = ["bm25", "zero_shot", "retriever_1", "retriever_2", "distilled", "averaged", "best"]


@pytest.mark.parametrize(
    ("systems", "trained", "first"),
    [
        (SYSTEMS, ["retriever_1", "distilled"], [("best", "zero_shot"), ("distilled", "zero_shot")]),
        (SYSTEMS, ["retriever_1", "retriever_2"], [("best", "zero_shot"), ("distilled", "zero_shot")]),
        ([*SYSTEMS, "round_3"], ["distilled", "round_3"], [("best", "zero_shot"), ("round_3", "zero_shot")]),
        (["zero_shot", "round_2"], ["round_2"], [("round_2", "zero_shot")]),
        (["bm25", "zero_shot", "best"], [], [("best", "zero_shot")]),
        (["bm25", "zero_shot"], [], []),
    ],
)
def test_winner_and_last_training_against_the_start_come_first(
    systems: list[str], trained: list[str], first: list[tuple[str, str]]
) -> None:
    pairs = compared_pairs(systems)
    found = compared_rows(pairs, systems, trained)
    assert found == first + [pair for pair in pairs if pair not in first]
