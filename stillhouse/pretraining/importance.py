"""Token importance from a token cache: count, prune, compute one AMI value per token."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillhouse.core.arrays import new_array
from stillhouse.core.monitoring.activity import doing
from stillhouse.pretraining.ngram_files import Saved, load_counts, save_counts
from stillhouse.pretraining.ngram_merge import Memory
from stillhouse.pretraining.ngrams import count_ngrams
from stillhouse.pretraining.pmi import score_tokens

AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Source:
    """The memory-mapped token arrays of `tokens/`, and the digest of their vocabulary."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    tokenizer: str

    @classmethod
    def open(cls, folder: Path, tokenizer: str) -> Source:
        return cls(np.load(folder / "ids.npy", mmap_mode="r"), np.load(folder / "offsets.npy"), tokenizer)

    def shard(self, shard: int, shards: int) -> Source:
        """Shard 1, 2 .. `shards` of the passages: consecutive runs of nearly equal size."""
        passages = len(self.offsets) - 1
        offsets = self.offsets[passages * (shard - 1) // shards : passages * shard // shards + 1]
        return Source(self.ids[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0], self.tokenizer)


@doing("counting n-grams")
def count_passages(source: Source, window: int, out: Path, work: Path, memory: Memory) -> Saved:
    """Write the counts of these passages to `out` as a count folder; `work` holds temporary files."""
    tables = count_ngrams(source.ids, source.offsets, window, work / "own", memory)
    return save_counts(tables, out, tokenizer=source.tokenizer)


@doing("counting n-grams and scoring tokens")
def write_importance(
    source: Source, window: int, min_count: int, counted: Path | None, out: Path, work: Path, memory: Memory
) -> tuple[Saved, float]:
    """Write `ami.npy` and the files of a count folder to `out`; `work` holds temporary files.

    `counted` is a count folder of these passages, if they were counted in shards. Returns the n-grams written and the
    standard deviation of AMI.
    """
    tables = (
        count_ngrams(source.ids, source.offsets, window, work / "own", memory)
        if counted is None
        else load_counts([counted], work / "sum", memory)[0]
    )
    saved = save_counts(tables, out, tokenizer=source.tokenizer, min_count=min_count)
    ami_T = new_array(out / "ami.npy", np.float32, len(source.ids))
    score_tokens(tables, source.ids, source.offsets, ami_T, memory, min_count)
    return saved, _spread(ami_T)


def _spread(values_T: NDArray[np.float32]) -> float:
    """The standard deviation, in two passes over fixed-size blocks, so that no setting changes its last digits."""
    parts = [slice(begin, begin + AT_ONCE) for begin in range(0, len(values_T), AT_ONCE)]
    size = max(1, len(values_T))
    mean = sum(float(values_T[part].sum(dtype=np.float64)) for part in parts) / size
    return math.sqrt(sum(float(((values_T[part] - mean) ** 2).sum(dtype=np.float64)) for part in parts) / size)
