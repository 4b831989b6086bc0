"""What masking costs, objective by objective, on one core: a section of the page of `counting`.

At batch 128 and length 150, CDMAE Table 6 gives 0.4 ms for random masks, 11.6 for RetroMAE's and 1.1 for CDMAE's
(apparently per passage), and 0.4 and 2.8 on the GPU for SimLM's. Here a batch has 128 passages of 150 random token ids.
The generator's forward pass is left out, because it is measured with the training steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from stillhouse.pretraining.corrupted import Corruptor
from stillhouse.pretraining.objectives import TABLE
from stillhouse.pretraining.settings import PretrainingConfig
from stillhouse.pretraining.tokens import SpecialTokens, TokenCache

BATCH, LENGTH, VOCABULARY, ROUNDS = 128, 150, 30_522, 40
SPECIALS = SpecialTokens(cls=101, sep=102, pad=0, mask=103, all=(0, 100, 101, 102, 103))


class NoGenerator:
    """Takes the place of a generator and leaves the tokens unchanged."""

    def replace(self, ids_BL: Tensor, attention_BL: Tensor, masks: Sequence[Tensor], rng: Any) -> tuple[Any, None]:
        return [ids_BL for _ in masks], None


def lines() -> Iterator[str]:
    """The section of the page: every objective."""
    torch.set_num_threads(1)
    cache = open_cache(1024)
    rows = drawn(cache, BATCH)
    reading = milliseconds(lambda: cache.batch(rows, LENGTH))
    yield f"Milliseconds for a batch of {BATCH} passages of {LENGTH} tokens, the median of {ROUNDS} batches, on one"
    yield f"core. Reading the batch from the token cache takes another {reading:.2f} ms for every objective."
    yield "The figures include the masks and replacements of encoder and decoder, but not a generator's forward pass."
    yield from ("", "| objective | tokens | whole words |", "|---|---|---|")
    for objective in TABLE:
        parts = [milliseconds(corruption(objective.name, unit, cache, rows)) - reading for unit in ("token", "word")]
        yield f"| `{objective.name}` | {parts[0]:.2f} | {parts[1]:.2f} |"


def open_cache(passages: int) -> TokenCache:
    """Passages of `LENGTH` random tokens."""
    rng, inner = np.random.default_rng(0), LENGTH - 2
    ids = rng.integers(1000, VOCABULARY, size=passages * inner).astype(np.int32)
    starts = rng.random(len(ids)) < 0.75
    offsets = np.arange(passages + 1, dtype=np.int64) * inner
    starts[offsets[:-1]] = True
    importance = rng.normal(5, 2, len(ids)).astype(np.float32)
    return TokenCache(ids, offsets, starts, SPECIALS, importance)


def drawn(cache: TokenCache, batch: int) -> np.ndarray:
    return np.random.default_rng(1).choice(len(cache.offsets) - 1, batch, replace=False)


def corruption(objective: str, unit: str, cache: TokenCache, rows: np.ndarray) -> Callable[[], object]:
    """What makes a batch of an objective, read from the cache."""
    config = PretrainingConfig(objective=objective, mask_unit=unit, max_length=LENGTH)
    row = config.row()
    assert row is not None, f"{objective} is a pair task"
    corrupt = Corruptor(cache, VOCABULARY, row, config, torch.device("cpu"), NoGenerator())  # type: ignore[arg-type]
    return lambda: corrupt(rows, np.random.default_rng(1))


def milliseconds(call: Any, rounds: int = ROUNDS) -> float:
    """The median time of a call."""
    call()
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return 1000 * float(np.median(times))
