"""The listwise loss of the cross-encoder (001 eq. 4).

Shape suffixes: B queries, K candidates of a query, the positive first.
"""

from __future__ import annotations

import torch
from torch import Tensor


def listwise_loss(scores_BK: Tensor, candidate_BK: Tensor) -> Tensor:
    """-log softmax of the score of column 0, the positive, among the query's candidates (001 eq. 4); mean of queries.

    Candidates where `candidate_BK` is false are padding. In `contrastive_loss` other queries' candidates count too.
    """
    nothing = torch.finfo(scores_BK.dtype).min
    return -scores_BK.masked_fill(~candidate_BK, nothing).log_softmax(dim=1)[:, 0].mean()
