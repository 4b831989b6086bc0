"""Token importance from a token cache: count, add counts of other passages, prune, compute one AMI value per token."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillhouse.core.arrays import new_array, write_numbers
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.pretraining.ngram_files import Saved, load_counts, read_about, save_counts
from stillhouse.pretraining.ngram_merge import Memory
from stillhouse.pretraining.ngram_tables import NgramTables, map_numbers
from stillhouse.pretraining.ngrams import count_ngrams
from stillhouse.pretraining.pmi import PruningError, Scoring, score_tokens
from stillhouse.pretraining.words import Words, cut_into_words, score_of_words, union

AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Source:
    """The memory-mapped token arrays of `tokens/`, and the digest of their vocabulary."""

    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    word_starts: NDArray[np.bool_]
    tokenizer: str

    @classmethod
    def open(cls, folder: Path, tokenizer: str) -> Source:
        ids, starts = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("ids", "word_starts"))
        return cls(ids, np.load(folder / "offsets.npy"), starts, tokenizer)

    def shard(self, shard: int, shards: int) -> Source:
        """Shard 1, 2 .. `shards` of the passages: consecutive runs of nearly equal size."""
        passages = len(self.offsets) - 1
        offsets = self.offsets[passages * (shard - 1) // shards : passages * shard // shards + 1]
        part = slice(int(offsets[0]), int(offsets[-1]))
        return Source(self.ids[part], offsets - offsets[0], self.word_starts[part], self.tokenizer)


@dataclass(frozen=True)
class Plan:
    """What to count and how to score. `others`: a count folder of other passages; `own`: whether to count these."""

    window: int
    unit: str
    scoring: Scoring
    others: Path | None = None
    own: bool = True


@dataclass(frozen=True)
class Done:
    """The result: the n-grams written, the error of pruning, and the standard deviation of AMI."""

    saved: Saved
    error: PruningError
    spread: float


@doing("counting n-grams")
def count_passages(source: Source, window: int, unit: str, out: Path, work: Path, memory: Memory) -> Saved:
    """Write the counts of these passages to `out` as a count folder; `work` holds temporary files."""
    words = cut_into_words(source.ids, source.word_starts, source.offsets, work) if unit == "words" else None
    units, offsets = (source.ids, source.offsets) if words is None else (words.ids, words.offsets)
    tables = count_ngrams(units, offsets, window, work / "own", memory)
    inventory = None if words is None else words.inventory
    return save_counts(tables, out, unit=unit, tokenizer=source.tokenizer, words=inventory)


@doing("counting n-grams and scoring tokens")
def write_importance(plan: Plan, source: Source, out: Path, work: Path, memory: Memory) -> Done:
    """Write `ami.npy` and the files of a count folder to `out`; `work` holds temporary files.

    Raises `InputError` for counts of another unit, window or tokenizer, and if there is nothing to count.
    """
    words = cut_into_words(source.ids, source.word_starts, source.offsets, work) if plan.unit == "words" else None
    units, offsets = (source.ids, source.offsets) if words is None else (words.ids, words.offsets)
    tables, inventory = _counts(plan, source, units, offsets, None if words is None else words.inventory, work, memory)
    least = plan.scoring.min_count
    saved = save_counts(tables, out, unit=plan.unit, tokenizer=source.tokenizer, min_count=least, words=inventory)
    ami_T = new_array(out / "ami.npy", np.float32, len(source.ids))
    if words is None:
        error = score_tokens(tables, units, offsets, plan.scoring, ami_T, memory)
    else:
        if plan.others is not None and inventory is not None:
            units = _renumbered(words, inventory, work / "renumbered")
        scores = new_array(work / "word_scores.npy", np.float32, len(units))
        error = score_tokens(tables, units, offsets, plan.scoring, scores, memory)
        score_of_words(ami_T, scores, source.word_starts, source.offsets)
    return Done(saved, error, _spread(ami_T))


def _counts(
    plan: Plan,
    source: Source,
    units: NDArray[np.int32],
    offsets: NDArray[np.int64],
    inventory: NDArray[np.int32] | None,
    work: Path,
    memory: Memory,
) -> tuple[NgramTables, NDArray[np.int32] | None]:
    """The tables to score with (from these passages, others or both) and the words that their numbers stand for."""
    if plan.others is None:
        if not plan.own:
            raise InputError(
                "nothing to count: leave own at true, or give the input counts, an output of `stillhouse importance`"
            )
        return count_ngrams(units, offsets, plan.window, work / "own", memory), inventory
    _refuse_other_kind(plan, plan.others, source.tokenizer)
    folders = [plan.others]
    if plan.own:
        own = count_ngrams(units, offsets, plan.window, work / "own", memory)
        save_counts(own, work / "own_counts", unit=plan.unit, tokenizer=source.tokenizer, words=inventory)
        folders.append(work / "own_counts")
    loaded = load_counts(folders, work / "sum", memory)
    return loaded.tables, loaded.words


def _refuse_other_kind(plan: Plan, others: Path, tokenizer: str) -> None:
    about = read_about(others)
    for what, theirs, ours in (
        ("unit", about.unit, plan.unit),
        ("window", len(about.totals), plan.window),
        ("tokenizer", about.tokenizer, tokenizer),
    ):
        if theirs != ours:
            raise InputError(
                f"--counts {others} has {what} {theirs}, but this run has {ours}; "
                "run `stillhouse importance` for it again with the same settings and tokenizer"
            )


def _renumbered(words: Words, inventory: NDArray[np.int32], path: Path) -> NDArray[np.int32]:
    """The corpus's words as rows of another inventory; unknown words get the number after its last row."""
    _, (theirs, ours) = union([inventory, words.inventory])
    place = np.searchsorted(theirs, ours)
    known = np.append(theirs, -1)[place] == ours
    number = np.where(known, place, len(theirs)).astype(np.int32)
    with path.open("wb") as file:
        for begin in range(0, len(words.ids), AT_ONCE):
            write_numbers(file, number[words.ids[begin : begin + AT_ONCE]])
    return map_numbers(path, np.int32)


def _spread(values_T: NDArray[np.float32]) -> float:
    """The standard deviation, in two passes over fixed-size blocks, so that no setting changes its last digits."""
    parts = [slice(begin, begin + AT_ONCE) for begin in range(0, len(values_T), AT_ONCE)]
    size = max(1, len(values_T))
    mean = sum(float(values_T[part].sum(dtype=np.float64)) for part in parts) / size
    return math.sqrt(sum(float(((values_T[part] - mean) ** 2).sum(dtype=np.float64)) for part in parts) / size)
