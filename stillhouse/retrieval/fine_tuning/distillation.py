"""Distillation of a cross-encoder into a bi-encoder (SimLM eq. 5).

Shape suffixes: B queries, K candidates of a query (its positive and its hard negatives).
"""

from __future__ import annotations

import torch
from torch import Tensor


def distillation_loss(student_BK: Tensor, teacher_BK: Tensor, candidate_BK: Tensor) -> Tensor:
    """KL(p_ranker || p_ret) over each query's own candidates (SimLM eq. 5), mean over the queries.

    Both are softmax distributions. `student_BK` holds the bi-encoder's scores divided by its temperature, `teacher_BK`
    the cross-encoder's raw scores. Candidates where `candidate_BK` is false are padding and get no probability.
    The distilled retriever adds alpha times `contrastive_loss` to this.
    """
    nothing = torch.finfo(student_BK.dtype).min
    student_log_BK = student_BK.masked_fill(~candidate_BK, nothing).log_softmax(dim=1)
    teacher_log_BK = teacher_BK.to(student_BK.dtype).masked_fill(~candidate_BK, nothing).log_softmax(dim=1)
    divergence_BK = teacher_log_BK.exp() * (teacher_log_BK - student_log_BK)
    return divergence_BK.masked_fill(~candidate_BK, 0).sum(dim=1).mean()
