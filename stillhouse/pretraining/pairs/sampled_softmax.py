"""The sampled softmax of 004 §2 (Bengio & Senécal 2008), with the passages of the batch as the sample.

Shape suffixes: B queries, C candidates, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy


def sampled_softmax_loss(
    query_BD: Tensor, passage_BD: Tensor, log_q_B: Tensor, same_target_BB: Tensor, temperature: float = 1.0
) -> Tensor:
    """-log p(d_i | q_i), the mean over the batch: 004 eq. 3 with its denominator over the batch's passages.

    A score is the inner product (004 eq. 1; the cosine for vectors of length 1) over `temperature`. From the score of
    every candidate, the right one too, the log of its probability q to be drawn is subtracted: the sum over a sample of
    exp(score) / q estimates the sum over all passages without bias. The number of draws is a factor that all candidates
    share, and the softmax drops it. Zeros as `log_q_B` leave the correction out.

    `same_target_BB` bool marks accidental hits, candidates that are no negatives of a query (query by candidate); they
    are left out of the denominator, the diagonal excepted. Scores and loss are float32 whatever the inputs.
    """
    with torch.autocast(query_BD.device.type, enabled=False):  # which would multiply in bf16 all the same
        scores_BC = query_BD.float() @ passage_BD.float().T / temperature
    own_BC = torch.eye(len(scores_BC), dtype=torch.bool, device=scores_BC.device)
    logits_BC = (scores_BC - log_q_B.float()[None]).masked_fill(same_target_BB & ~own_BC, -torch.inf)
    return cross_entropy(logits_BC, torch.arange(len(logits_BC), device=logits_BC.device))
