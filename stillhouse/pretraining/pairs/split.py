"""Holds out whole articles, so that no held-out pair shares an article with a training pair."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stillhouse.errors import InputError

HELDOUT = 1
"""Second part of the seed of the split."""


def heldout_passages(
    article_N: NDArray[np.int32], usable_N: NDArray[np.bool_], fraction: float, limit: int, seed: int
) -> NDArray[np.bool_]:
    """True at the passages of held-out articles, bool [N]; depends only on the arguments.

    Holds out `fraction` of the articles with a usable passage, at least one, with at most `limit` usable passages in
    total unless the first article alone has more. A passage without an article counts as its own article. Raises
    `InputError` for fewer than two articles.
    """
    alone = len(article_N) + np.arange(len(article_N))
    group_N = np.where(article_N >= 0, article_N, alone)
    groups, sizes = np.unique(group_N[usable_N], return_counts=True)
    if len(groups) < 2:
        raise InputError(
            f"pair tasks hold out whole articles, but the number of articles with sentences is {len(groups)}; "
            "`stillhouse ingest` a corpus of several articles"
        )
    order = np.random.default_rng([seed, HELDOUT]).permutation(len(groups))
    within = int(np.searchsorted(np.cumsum(sizes[order]), limit, side="right"))
    count = min(max(1, round(len(groups) * fraction)), max(1, within), len(groups) - 1)
    return np.isin(group_N, groups[order[:count]])
