"""Out-of-core counting compared with dictionaries, for any memory size, number of threads and key layout."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from slow_counts import flat, slow_counts

from stillhouse.pretraining.ngram_merge import Memory
from stillhouse.pretraining.ngram_tables import NgramTables
from stillhouse.pretraining.ngrams import count_ngrams

Counts = list[dict[tuple[int, ...], int]]


def counted(tables: NgramTables) -> Counts:
    found = []
    for n, order in enumerate(tables.orders, start=1):
        grams = tables.grams(n, order.keys).tolist()
        assert grams == sorted(grams)
        found.append(dict(zip(map(tuple, grams), order.counts.tolist())))
        assert order.total == sum(found[-1].values())
    return found


def corpus(vocabulary: int, seed: int, passages: int = 60) -> list[list[int]]:
    """Passages of 0 to 30 tokens, some of which are frequent and some spread over the whole vocabulary."""
    draw = random.Random(seed)
    return [
        [draw.randrange(vocabulary) if draw.random() < 0.3 else draw.randrange(4) for _ in range(draw.randrange(31))]
        for _ in range(passages)
    ]


@pytest.mark.parametrize("vocabulary", [5, 300, 200_000])
@pytest.mark.parametrize("longest", [1, 4, 8])
@pytest.mark.parametrize("memory", [Memory(1, 1), Memory(1 << 13, 3), Memory(1 << 30, 2)])
def test_equals_dictionaries(vocabulary: int, longest: int, memory: Memory, tmp_path: Path) -> None:
    passages = corpus(vocabulary, seed=longest)
    ids, offsets = flat(passages)
    tables = count_ngrams(ids, offsets, longest, tmp_path, memory)
    expected = slow_counts(passages, longest)
    assert counted(tables) == expected
    here = tables.count_block(tables.block(ids, offsets))
    assert not list(tmp_path.glob("runs*"))
    for n in range(1, longest + 1):
        looked_up = [
            expected[n - 1].get(tuple(passage[i : i + n]), 0) if i + n <= len(passage) else 0
            for passage in passages
            for i in range(len(passage))
        ]
        assert here[n - 1].tolist() == looked_up


def test_memory_is_bounded(tmp_path: Path) -> None:
    """A million tokens with nearly all n-grams distinct: tables of about 48 MiB, from 4 MiB of memory."""
    np.save(tmp_path / "ids.npy", np.random.default_rng(0).integers(0, 30_000, 1_000_000).astype(np.int32))
    ids, offsets = np.load(tmp_path / "ids.npy", mmap_mode="r"), np.arange(0, 1_000_001, 100)
    tracemalloc.start()
    tables = count_ngrams(ids, offsets, 4, tmp_path / "tables", Memory(4 << 20))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(order.keys.nbytes + order.counts.nbytes for order in tables.orders) > 40 << 20
    # Finding the vocabulary takes 8 MiB whatever the setting is.
    assert peak < 10 << 20


def test_tokens_that_were_not_counted_have_no_counts(tmp_path: Path) -> None:
    tables = count_ngrams(*flat([[1, 2, 3, 5, 5]]), 3, tmp_path)
    counts = tables.count_block(tables.block(*flat([[1, 2, 9, 3], [4, 1, 2, 3], [5]])))
    assert [counts_T.tolist() for counts_T in counts] == [
        [1, 1, 0, 1, 0, 1, 1, 1, 2],
        [1, 0, 0, 0, 0, 1, 1, 0, 0],
        [0, 0, 0, 0, 0, 1, 0, 0, 0],
    ]
