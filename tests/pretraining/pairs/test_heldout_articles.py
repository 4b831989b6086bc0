"""The split by articles: its size, whole articles, the limit, and the seed."""

from __future__ import annotations

import numpy as np
import pytest

from stillhouse.core.errors import InputError
from stillhouse.pretraining.pairs.task import heldout_passages

# 40 articles of 3 passages, 10 passages without an article; the last passage of every article cannot be used.
ARTICLE = np.concatenate([np.repeat(np.arange(40), 3), np.full(10, -1)]).astype(np.int32)
USABLE = np.concatenate([np.tile([True, True, False], 40), np.ones(10, dtype=bool)])


@pytest.mark.parametrize(
    ("fraction", "limit", "articles"),
    [(0.1, 1000, {5}), (0.5, 1000, {25}), (0.0001, 1000, {1}), (0.5, 1, {1}), (0.5, 10, set(range(5, 11)))],
)
def test_whole_articles_are_held_out_up_to_the_limit(fraction: float, limit: int, articles: set[int]) -> None:
    for seed in range(5):
        held = heldout_passages(ARTICLE, USABLE, fraction, limit, seed)
        inside = held[:120].reshape(40, 3)
        assert (inside.all(1) == inside.any(1)).all()
        count = int(inside.all(1).sum()) + int(held[120:].sum())
        assert count in articles
        assert int((held & USABLE).sum()) <= max(limit, 2)


def test_something_is_left_to_train_on() -> None:
    held = heldout_passages(np.array([0, 0, 1], np.int32), np.ones(3, dtype=bool), 0.5, 10, 0)
    assert held.any() and not held.all()


@pytest.mark.parametrize("usable", [[True, True, False], [False, False, False]])
def test_one_article_cannot_be_split(usable: list[bool]) -> None:
    with pytest.raises(InputError, match="several articles"):
        heldout_passages(np.array([0, 0, 1], np.int32), np.array(usable), 0.5, 10, 0)
