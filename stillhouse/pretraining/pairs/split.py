"""Which passages are held out: whole articles, so that no held-out pair shares an article with a training pair."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stillhouse.errors import InputError

HELDOUT = 1
"""Second part of the seed of the split."""


def heldout_passages(
    article_N: NDArray[np.int32], usable_N: NDArray[np.bool_], fraction: float, limit: int, seed: int
) -> NDArray[np.bool_]:
    """True at the passages of held-out articles, bool [N]: a function of the arguments alone.

    `fraction` of the articles that have a usable passage is held out, at least one, and no more than have `limit`
    usable passages together, unless the first alone has more. A passage without an article is an article of its own.
    Raises `InputError` when there are not two articles.
    """
    alone = len(article_N) + np.arange(len(article_N))
    group_N = np.where(article_N >= 0, article_N, alone)
    groups, sizes = np.unique(group_N[usable_N], return_counts=True)
    if len(groups) < 2:
        raise InputError(
            f"pair tasks hold out whole articles, and there are {len(groups)} with sentences; "
            "`stillhouse ingest` a corpus of several articles"
        )
    order = np.random.default_rng([seed, HELDOUT]).permutation(len(groups))
    within = int(np.searchsorted(np.cumsum(sizes[order]), limit, side="right"))
    count = min(max(1, round(len(groups) * fraction)), max(1, within), len(groups) - 1)
    return np.isin(group_N, groups[order[:count]])
