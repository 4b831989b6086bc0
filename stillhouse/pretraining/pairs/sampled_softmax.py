"""The sampled softmax of Chang et al. (2020) §2 (Bengio & Senécal 2008), with the passages of the batch as the sample.

Shape suffixes: B queries, Q queries scored together, C candidates, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

SCORES_AT_ONCE = 1 << 24
"""The most scores held at once: 64 MiB in float32, and several times that during the backward pass."""


def sampled_softmax_loss(
    query_BD: Tensor, passage_BD: Tensor, log_q_B: Tensor, same_target_BB: Tensor, temperature: float = 1.0
) -> Tensor:
    """The mean of -log p(d_i | q_i) over the batch: Chang et al. eq. 3 with the batch's passages in the denominator.

    A score is the inner product (Chang et al. eq. 1; the cosine for vectors of length 1) divided by `temperature`. The
    log of its sampling probability q is subtracted from every candidate's score, including the correct one's: the sum
    of exp(score) / q over a sample is an unbiased estimate of the sum over all passages. The number of draws is a
    common factor that the softmax cancels. If `log_q_B` is zero, there is no correction.

    `same_target_BB` bool marks accidental hits, candidates that are not valid negatives of a query (query by
    candidate). They are left out of the denominator, except on the diagonal. Scores and loss are always float32. For
    large batches only some queries' scores exist at a time (`SCORES_AT_ONCE`); the backward pass recomputes them.
    """
    count = len(query_BD)
    rows = max(1, SCORES_AT_ONCE // count)
    own_B = torch.arange(count, device=query_BD.device)
    shared = (passage_BD.float(), log_q_B.float(), temperature)
    parts = zip(query_BD.float().split(rows), same_target_BB.split(rows), own_B.split(rows))
    with torch.autocast(query_BD.device.type, enabled=False):  # autocast would multiply in bf16
        if rows >= count:
            return _summed(*next(parts), *shared) / count
        sums = [checkpoint(_summed, *part, *shared, use_reentrant=False, preserve_rng_state=False) for part in parts]
    return torch.stack(sums).sum() / count


def _summed(
    query_QD: Tensor, same_target_QC: Tensor, own_Q: Tensor, passage_CD: Tensor, log_q_C: Tensor, temperature: float
) -> Tensor:
    """The sum of the losses of some queries; `own_Q` are the indices of their correct candidates."""
    scores_QC = query_QD @ passage_CD.T / temperature
    hit_QC = same_target_QC.scatter(1, own_Q[:, None], False)
    return cross_entropy((scores_QC - log_q_C).masked_fill(hit_QC, -torch.inf), own_Q, reduction="sum")
