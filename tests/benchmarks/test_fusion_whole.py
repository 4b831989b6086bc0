"""The page of `fusion_whole.py`: means and differences of what a workspace's artifacts gave."""

from __future__ import annotations

from pathlib import Path

import pytest


def test_the_page_has_a_column_for_each_retriever_of_each_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: a ranking 0.25 above the retriever alone, which shows no difference to itself."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    from fusion_whole import START, page_lines

    ways = {START: [0.5, 0.0, 0.0, 0.0], "BM25": [0.75, 0.25, 0.125, 0.375]}
    one = {"machine": "Machine.", "passages": 1000, "questions": 8, "ways": ["BM25", START]}
    lines = page_lines({"little": one | {"start": ways, "retriever 2": ways}})
    assert "| ranking | little, start | little, retriever 2 |" in lines
    both = "| 0.750 (+0.250, +0.125 to +0.375) | 0.750 (+0.250, +0.125 to +0.375) |"
    assert lines[-2:] == [f"| BM25 {both}", f"| {START} | 0.500 | 0.500 |"]
    assert "little has 1,000 passages and 8 test questions." in lines
