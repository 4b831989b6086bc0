"""The listwise loss of the cross-encoder (SimLM eq. 4), and the disagreement of two passes with dropout (R-Drop).

Shape suffixes: B queries, K candidates of a query, the positive first.
"""

from __future__ import annotations

import torch
from torch import Tensor


def listwise_loss(scores_BK: Tensor, candidate_BK: Tensor) -> Tensor:
    """-log softmax of the positive's score (column 0) over the query's candidates (SimLM eq. 4); mean of queries.

    Candidates where `candidate_BK` is false are padding. Unlike here, `contrastive_loss` counts other queries'
    candidates too.
    """
    nothing = torch.finfo(scores_BK.dtype).min
    return -scores_BK.masked_fill(~candidate_BK, nothing).log_softmax(dim=1)[:, 0].mean()


def disagreement(one_BK: Tensor, other_BK: Tensor, candidate_BK: Tensor) -> Tensor:
    """(KL(p || q) + KL(q || p)) / 2 of the softmax of two passes over each query's candidates; mean of queries.

    This is R-Drop (Liang et al. 2021, eq. 2); the code of SimLM adds it to the listwise loss of its re-ranker.
    Candidates where `candidate_BK` is false are padding.
    """
    nothing = torch.finfo(one_BK.dtype).min
    one_log_BK = one_BK.masked_fill(~candidate_BK, nothing).log_softmax(dim=1)
    other_log_BK = other_BK.masked_fill(~candidate_BK, nothing).log_softmax(dim=1)
    # sum p log(p / q) + sum q log(q / p) = sum (p - q) (log p - log q)
    product_BK = (one_log_BK.exp() - other_log_BK.exp()) * (one_log_BK - other_log_BK)
    return product_BK.masked_fill(~candidate_BK, 0).sum(dim=1).mean() / 2
