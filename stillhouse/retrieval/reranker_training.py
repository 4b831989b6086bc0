"""Training the cross-encoder with the listwise loss (001 eq. 4).

Shape suffixes: B queries, K candidates of a query.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from stillhouse.context import Context
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.retrieval.cross_encoder import CrossEncoder
from stillhouse.retrieval.group_training import open_samplers, train_on_groups
from stillhouse.retrieval.listwise import listwise_loss
from stillhouse.retrieval.negatives import Negatives
from stillhouse.training.curves import CurveRow
from stillhouse.training.settings import TrainingConfig


def train_reranker(
    model: CrossEncoder,
    corpus: Corpus,
    negatives: Negatives,
    config: TrainingConfig,
    negatives_per_query: int,
    negatives_depth: int,
    context: Context,
) -> list[CurveRow]:
    """Trains `model` in place on the train queries and returns its curves; dev queries give the held-out loss.

    Raises `InputError` for a split without queries. A query without negatives teaches nothing and adds 0 to the loss.
    """
    texts = np.array(passage_texts(corpus), dtype=object)
    device = context.torch_device()
    samplers = open_samplers(corpus, negatives, negatives_per_query, negatives_depth, config.seed, context)

    def loss(split: str, examples_B: np.ndarray, stream: int) -> Tensor:
        groups = samplers[split].draw(examples_B, stream)
        query_BK = np.broadcast_to(examples_B[:, None], groups.rows_BK.shape)[groups.candidate_BK]
        rows = groups.rows_BK[groups.candidate_BK]
        pairs = model.pairs(list(samplers[split].texts[query_BK]), list(texts[rows]))
        candidate_BK = torch.from_numpy(groups.candidate_BK).to(device)
        scores = model(*pairs.batch(range(len(pairs)), device))
        scores_BK = torch.zeros(candidate_BK.shape, device=device).masked_scatter(candidate_BK, scores)
        return listwise_loss(scores_BK, candidate_BK)

    return train_on_groups(model, samplers, loss, config, context)
