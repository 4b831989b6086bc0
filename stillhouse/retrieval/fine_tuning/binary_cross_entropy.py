"""The binary cross-entropy of a cross-encoder's scores: each pair is classified on its own.

Shape suffixes: B queries, K candidates of a query, the positive first.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid


def binary_cross_entropy(scores_BK: Tensor, candidate_BK: Tensor) -> Tensor:
    """-log sigmoid(score) of column 0 and -log(1 - sigmoid(score)) of the others; mean of candidates, then of queries.

    The positive counts as often as the query has negatives, or once if it has none. Candidates where `candidate_BK`
    is false are padding. Unlike with `listwise_loss`, scores of different queries are comparable.
    """
    candidate_BK = candidate_BK.to(scores_BK.dtype)
    candidates_B = candidate_BK.sum(dim=1)
    positive_B = -logsigmoid(scores_BK[:, 0]) * (candidates_B - 1).clamp(min=1)
    negatives_B = (-logsigmoid(-scores_BK[:, 1:]) * candidate_BK[:, 1:]).sum(dim=1)
    return torch.mean((positive_B + negatives_B) / candidates_B)
