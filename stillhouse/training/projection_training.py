"""Training a square matrix on top of a retriever's vectors, with all passages as negatives, in seconds.

The vectors of passages come from an index and those of queries are computed once, so that a step is two matrix
products. The matrix begins as the identity. It learns from the same labels as a retriever, but sees every passage in
every step; what it learns best is which passages answer, where later queries have the same answers as train queries
(docs/findings.md).

Shape suffixes: B queries of a step, N passages of a step, D width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stillhouse.core.arrays import chunks
from stillhouse.core.context import Context
from stillhouse.core.curves import CurveRow
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus
from stillhouse.models.encoder import BiEncoder, encode
from stillhouse.models.pooling import normalized
from stillhouse.models.settings import InferenceConfig
from stillhouse.search.searcher import check_width
from stillhouse.search.vector_index import VectorIndex
from stillhouse.training.batches import epoch_batches, steps_for
from stillhouse.training.fixed_passages import FixedPassages, fixed_passages_loss
from stillhouse.training.groups import asked_queries
from stillhouse.training.loop import train
from stillhouse.training.settings import ProjectionTrainingConfig


class Projection(nn.Module):
    """`forward(vectors_BD) -> vectors_BD`: the vectors times a matrix (stored minus the identity)."""

    def __init__(self, width: int, normalize: bool) -> None:
        super().__init__()
        self.change_DD = nn.Parameter(torch.zeros(width, width))
        self.normalize = normalize

    def forward(self, vectors_BD: Tensor) -> Tensor:
        mapped_BD = vectors_BD + vectors_BD @ self.change_DD.T
        return normalized(mapped_BD) if self.normalize else mapped_BD

    def matrix_DD(self) -> Tensor:
        """The matrix, float32, on the CPU."""
        return torch.eye(len(self.change_DD)) + self.change_DD.detach().cpu()


@dataclass(frozen=True)
class Asked:
    """The vectors of a split's judged queries, and the passages that they are ranked among."""

    vectors_BD: Tensor
    passages: FixedPassages

    def loss(self, projection: Projection, queries_B: NDArray[np.int64], step: int, temperature: float) -> Tensor:
        """The mean loss of some queries."""
        targets = self.passages.targets(queries_B, step)
        with torch.autocast(self.vectors_BD.device.type, enabled=False):
            queries_BD = projection(self.vectors_BD[torch.from_numpy(queries_B).to(self.vectors_BD.device)])
            scores_BN = queries_BD @ projection(targets.vectors_ND).T / temperature
            return fixed_passages_loss(scores_BN, targets.right, targets.never_negative)


def train_projection(
    encoder: BiEncoder, index: VectorIndex, corpus: Corpus, config: ProjectionTrainingConfig, context: Context
) -> tuple[Tensor, list[CurveRow]]:
    """The matrix [D, D] of the step with the lowest loss on dev queries, and the curves.

    `index` holds the vectors that `encoder` gives the corpus. Raises `InputError` for an index of another width, and
    for a corpus without judged train or dev queries.
    """
    check_width(encoder, index)
    if index.width < encoder.width:
        raise InputError(f"the index has vectors cut to {index.width} dimensions; run `stillhouse index` without a cut")
    device = context.torch_device()

    def asked(split: str) -> Asked:
        query_ids, texts = asked_queries(corpus, split)
        what = f"encoding the {split} queries"
        vectors_BD = encode(encoder, encoder.queries(texts), context, what, InferenceConfig(precision=config.precision))
        passages = FixedPassages(index, corpus, query_ids, config.passages_at_once, config.seed, device)
        return Asked(torch.from_numpy(vectors_BD).to(device), passages)

    train_queries, dev_queries = asked("train"), asked("dev")
    projection = Projection(index.width, encoder.settings.normalize)
    count, dev_count = len(train_queries.vectors_BD), len(dev_queries.vectors_BD)
    batch = epoch_batches(count, config.batch_size, config.seed)
    steps = steps_for(count, config.batch_size, config.epochs, config.max_steps)

    def batch_loss(step: int) -> Tensor:
        return train_queries.loss(projection, batch(step), step, config.temperature)

    def heldout_losses() -> Iterator[tuple[int, Tensor]]:
        for places in chunks(dev_count, config.batch_size):
            part = np.arange(dev_count)[places]
            # Every held-out loss uses the sample of step 0, so all of them rank among the same passages.
            yield len(part), dev_queries.loss(projection, part, 0, config.temperature)

    rows = train(projection.to(device), batch_loss, heldout_losses, steps, config, context)
    return projection.matrix_DD(), rows
