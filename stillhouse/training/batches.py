"""Which examples a training step sees: a function of the step alone, so a resumed run sees the same ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from stillhouse.core.errors import InputError

BUCKETS = 2**32
"""The second part of the seeds of `length_buckets`; larger than any epoch."""
LENGTHS_ALIKE = 8
"""`cheapest_parts` never separates texts with lengths that round up to the same multiple of this."""


def epoch_batches(count: int, batch_size: int, seed: int) -> Callable[[int], np.ndarray]:
    """Return `batch(step) -> int64 [batch_size]`: example numbers from shuffled epochs, one after another.

    Every epoch is a permutation of `range(count)`, drawn from (seed, epoch). A batch may straddle two epochs, so all
    batches have the same size and no example is left out. If there are fewer examples than `batch_size`, a batch has
    all of them.
    """
    assert count > 0, "no examples to make batches of"
    batch_size = min(batch_size, count)

    @lru_cache(maxsize=2)
    def permutation(epoch: int) -> np.ndarray:
        return np.random.default_rng([seed, epoch]).permutation(count)

    def batch(step: int) -> np.ndarray:
        positions = np.arange(step * batch_size, (step + 1) * batch_size)
        epochs = positions // count
        return np.concatenate([permutation(epoch)[positions[epochs == epoch] % count] for epoch in np.unique(epochs)])

    return batch


def times_seen(count: int, batch_size: int) -> Callable[[int], np.ndarray]:
    """Return `times(step) -> int64 [batch_size]`: how often each example of `epoch_batches` was seen before."""
    batch_size = min(batch_size, count)
    return lambda step: np.arange(step * batch_size, (step + 1) * batch_size) // count


def steps_for(count: int, batch_size: int, epochs: float | None, max_steps: int | None) -> int:
    """The number of training steps: `epochs` passes over `count` examples, at most `max_steps`.

    Either may be None; the other then decides. Raises `InputError` if both are.
    """
    if not epochs:
        if not max_steps:
            raise InputError("epochs and max_steps are both null; set one of them, so that training ends")
        return max_steps
    steps = max(1, round(epochs * count / min(batch_size, count)))
    return min(steps, max_steps) if max_steps else steps


def length_parts(lengths: np.ndarray, size: int) -> list[np.ndarray]:
    """The numbers 0..N-1 in parts of at most `size` and about equal size.

    A single part keeps their order. Otherwise similar lengths go together, longest first, to keep padding low."""
    parts = -(-len(lengths) // size)
    order = np.argsort(-lengths, kind="stable") if parts > 1 else np.arange(len(lengths))
    return np.array_split(order, parts)


def cheapest_parts(lengths: np.ndarray, part_cost: int) -> list[np.ndarray]:
    """The numbers 0..N-1 in the cheapest parts, where a part costs its padded tokens plus `part_cost`.

    A single part keeps their order. Otherwise texts of similar length go together, longest first.
    """
    order = np.argsort(-lengths, kind="stable")
    classes = -(-lengths[order] // LENGTHS_ALIKE)
    starts = np.append(np.flatnonzero(np.diff(classes, prepend=-1)), len(order))
    longest = lengths[order[starts[:-1]]]
    # cost[i] is the least cost of the texts from starts[i] on; ends[i] is the end of their first part.
    cost, ends = np.zeros(len(starts)), np.zeros(len(starts), dtype=np.int64)
    for first in reversed(range(len(longest))):
        costs = (starts[first + 1 :] - starts[first]) * longest[first] + part_cost + cost[first + 1 :]
        ends[first] = first + 1 + int(np.argmin(costs))
        cost[first] = costs.min()
    cuts = [0]
    while cuts[-1] < len(longest):
        cuts.append(int(ends[cuts[-1]]))
    return np.split(order, starts[cuts[1:-1]]) if len(cuts) > 2 else [np.arange(len(lengths))]


def length_buckets(
    batch: Callable[[int], np.ndarray], lengths: np.ndarray, steps: int, window: int, seed: int
) -> Callable[[int], np.ndarray]:
    """Regroup the examples of `batch` so that those of a batch have similar lengths and need little padding.

    Within each `window` of steps the examples are sorted by `lengths` (ties at random) and cut into batches, which are
    put in random order, drawn from (seed, window). Every example stays in its window, and batches keep the sizes that
    `batch` gives.
    """

    @lru_cache(maxsize=1)
    def deal(number: int) -> list[np.ndarray]:
        batches = [batch(step) for step in range(number * window, min((number + 1) * window, steps))]
        random = np.random.default_rng([seed, BUCKETS, number])
        examples = np.concatenate(batches)
        examples = examples[np.lexsort((random.random(len(examples)), lengths[examples]))]
        parts = np.split(examples, np.cumsum([len(part) for part in batches])[:-1])
        return [parts[place] for place in random.permutation(len(parts))]

    return lambda step: deal(step // window)[step % window]
