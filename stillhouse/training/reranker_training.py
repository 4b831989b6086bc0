"""Training the cross-encoder with the listwise loss (SimLM eq. 4).

Shape suffixes: B queries, K candidates of a query, column 0 its positive.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stillhouse.core.arrays import chunks
from stillhouse.core.context import Context
from stillhouse.core.curves import CurveRow
from stillhouse.corpus.store import Corpus, open_passage_texts
from stillhouse.corpus.table_file import TextFile
from stillhouse.models.acceleration.device import on_device
from stillhouse.models.cross_encoder import CrossEncoder
from stillhouse.models.pair_scores import PairTexts
from stillhouse.training.dev_ranking import DevCandidates, score_by_reranker
from stillhouse.training.group_training import Reads, open_samplers, train_on_groups
from stillhouse.training.groups import GroupSampler
from stillhouse.training.losses import listwise_loss
from stillhouse.training.measurements import READS_OF_TRAINING
from stillhouse.training.negatives import Negatives
from stillhouse.training.settings import RerankerConfig


@dataclass(frozen=True)
class DrawnPairs:
    """The candidates of some queries as tokens. `number_BK` is each candidate's number among `pairs`, or -1."""

    pairs: PairTexts
    number_BK: np.ndarray


@dataclass(frozen=True)
class RerankerLoss:
    """The loss of a split's examples, in parts of some queries each that add up to it.

    Call it as `loss(split, loss.draw(split, examples_B, times_B))`. `mini_batch_size` limits the pairs of a part, which
    has at least one query.
    """

    model: CrossEncoder
    texts: TextFile | np.ndarray
    samplers: Mapping[str, GroupSampler]
    device: torch.device
    mini_batch_size: int | None = None

    def draw(self, split: str, examples_B: np.ndarray, times_B: np.ndarray) -> DrawnPairs:
        """The pairs of the examples, tokenized."""
        groups = self.samplers[split].draw(examples_B, times_B)
        query_BK = np.broadcast_to(examples_B[:, None], groups.rows_BK.shape)[groups.candidate_BK]
        texts = self.samplers[split].texts[query_BK]
        pairs = self.model.pairs(list(texts), list(self.texts[groups.rows_BK[groups.candidate_BK]]))
        number_BK = np.full(groups.rows_BK.shape, -1)
        number_BK[groups.candidate_BK] = np.arange(len(pairs))
        return DrawnPairs(pairs, number_BK)

    def __call__(self, split: str, drawn: DrawnPairs) -> Iterator[Tensor]:
        queries, candidates = drawn.number_BK.shape
        for part in chunks(queries, max(1, self.mini_batch_size // candidates) if self.mini_batch_size else queries):
            known_BK = drawn.number_BK[part] >= 0
            pairs = drawn.pairs.batch(drawn.number_BK[part][known_BK], self.device)
            known_BK = on_device(known_BK, self.device)
            scores_BK = torch.zeros(known_BK.shape, device=self.device).masked_scatter(known_BK, self.model(*pairs))
            yield listwise_loss(scores_BK, known_BK) * (len(part) / queries)


def fit_reranker(
    model: CrossEncoder, corpus: Corpus, negatives: Negatives, config: RerankerConfig, context: Context
) -> list[CurveRow]:
    """Train `model` in place on the train queries and return its curves; dev queries choose the step to keep.

    The held-out loss covers all drawn candidates, read without dropout. Raises `InputError` as `GroupSampler` does. A
    query without negatives teaches nothing and adds 0 to the listwise loss.
    """
    texts, count = open_passage_texts(corpus, context.work), config.negatives_per_query
    samplers = open_samplers(corpus, negatives, count, config.negatives_depth, config.seed, context)
    loss = RerankerLoss(model, texts, samplers, context.torch_device(), config.mini_batch_size)

    def score(candidates: DevCandidates) -> NDArray[np.float32]:
        return score_by_reranker(model, candidates, texts, context)

    reads = Reads(example=READS_OF_TRAINING * (1 + count), heldout=1 + count, passages_once=False)
    return train_on_groups(model, samplers, loss.draw, loss, score, reads, config, context)
