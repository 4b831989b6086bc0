"""Whole words from word pieces, compared with Python tuples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stillhouse.pretraining import words as module
from stillhouse.pretraining.words import cut_into_words, score_of_words

TOKEN = st.tuples(st.integers(0, 3), st.booleans())


def slow_words(passages: list[list[tuple[int, bool]]]) -> list[list[tuple[int, ...]]]:
    cut: list[list[tuple[int, ...]]] = []
    for passage in passages:
        cut.append([])
        for token, begins in passage:
            if begins or not cut[-1]:
                cut[-1].append((token,))
            else:
                cut[-1][-1] += (token,)
    return cut


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(passages=st.lists(st.lists(TOKEN, max_size=8), max_size=6), at_once=st.sampled_from([3, 10, 1000]))
def test_words_are_their_pieces(
    passages: list[list[tuple[int, bool]]], at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOKENS_AT_ONCE", at_once)
    ids = np.array([token for passage in passages for token, _ in passage], dtype=np.int32)
    starts = np.array([begins for passage in passages for _, begins in passage], dtype=bool)
    offsets = np.cumsum([0] + [len(passage) for passage in passages])
    words = cut_into_words(ids, starts, offsets, tmp_path)
    expected = slow_words(passages)
    spelled = [tuple(piece for piece in word if piece >= 0) for word in words.inventory.tolist()]
    assert spelled == sorted({word for passage in expected for word in passage})
    assert [
        [spelled[word] for word in words.ids[begin:end]] for begin, end in zip(words.offsets[:-1], words.offsets[1:])
    ] == expected
    into = np.zeros(len(ids), dtype=np.float32)
    score_of_words(into, np.arange(len(words.ids), dtype=np.float32), starts, offsets)
    number = iter(range(len(ids)))
    assert into.tolist() == [word for passage in expected for word in map(float, _spread(passage, number))]


def _spread(passage: list[tuple[int, ...]], number: object) -> list[int]:
    return [place for word in passage for place in [next(number)] * len(word)]  # type: ignore[call-overload]
