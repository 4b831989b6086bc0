"""The sampled softmax of Chang et al. (2020) §2 (Bengio & Senécal 2008), with the passages of the batch as the sample.

Shape suffixes: B queries, Q those whose scores are computed together, C candidates, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

SCORES_AT_ONCE = 1 << 24
"""The most scores that exist together; 64 MiB in float32, and several times that while a gradient is computed."""


def sampled_softmax_loss(
    query_BD: Tensor, passage_BD: Tensor, log_q_B: Tensor, same_target_BB: Tensor, temperature: float = 1.0
) -> Tensor:
    """-log p(d_i | q_i), the mean over the batch: Chang et al. eq. 3 with its denominator over the batch's passages.

    A score is the inner product (Chang et al. eq. 1; the cosine for vectors of length 1) over `temperature`. From the
    score of every candidate, the right one too, the log of its probability q to be drawn is subtracted: the sum over a
    sample of exp(score) / q estimates the sum over all passages without bias. The number of draws is a factor that all
    candidates share, and the softmax drops it. Zeros as `log_q_B` leave the correction out.

    `same_target_BB` bool marks accidental hits, candidates that are no negatives of a query (query by candidate); they
    are left out of the denominator, the diagonal excepted. Scores and loss are float32 whatever the inputs. Of a large
    batch only some queries' scores exist at a time (`SCORES_AT_ONCE`); they are computed again for the gradient.
    """
    count = len(query_BD)
    rows = max(1, SCORES_AT_ONCE // count)
    own_B = torch.arange(count, device=query_BD.device)
    shared = (passage_BD.float(), log_q_B.float(), temperature)
    parts = zip(query_BD.float().split(rows), same_target_BB.split(rows), own_B.split(rows))
    with torch.autocast(query_BD.device.type, enabled=False):  # which would multiply in bf16 all the same
        if rows >= count:
            return _summed(*next(parts), *shared) / count
        sums = [checkpoint(_summed, *part, *shared, use_reentrant=False, preserve_rng_state=False) for part in parts]
    return torch.stack(sums).sum() / count


def _summed(
    query_QD: Tensor, same_target_QC: Tensor, own_Q: Tensor, passage_CD: Tensor, log_q_C: Tensor, temperature: float
) -> Tensor:
    """The sum of the losses of some queries, whose own candidates are those of the numbers `own_Q`."""
    scores_QC = query_QD @ passage_CD.T / temperature
    hit_QC = same_target_QC.scatter(1, own_Q[:, None], False)
    return cross_entropy((scores_QC - log_q_C).masked_fill(hit_QC, -torch.inf), own_Q, reduction="sum")
