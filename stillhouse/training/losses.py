"""The losses of retrievers and re-rankers, as formulas over vectors or scores.

Shape suffixes: B queries, M passages of the batch (positives and hard negatives of all its queries), D width, K
candidates of a query, the positive first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from stillhouse.training.settings import FORMS


@dataclass(frozen=True)
class LossBatch:
    """All that a loss of a retriever can be made of: the vectors of a batch, and which passages answer which query.

    `positive_B` (int64) is the column of each query's positive among the passages. `negative_BM` (bool) is true where a
    passage is a negative of the query: neither its positive nor another relevant passage. `candidate_BK` (int64) are
    the columns of the passages drawn for each query, its positive first. With a teacher, `teacher_BK` are its scores of
    these and `known_BK` says where it has one.
    """

    queries_BD: Tensor
    passages_MD: Tensor
    positive_B: Tensor
    negative_BM: Tensor
    candidate_BK: Tensor | None = None
    teacher_BK: Tensor | None = None
    known_BK: Tensor | None = None
    positives_BD: Tensor = field(init=False)
    """The vector of each query's positive. It is taken first, because gradients add up in the order of use."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "positives_BD", self.passages_MD[self.positive_B])

    def right_BB(self) -> Tensor:
        """Whether the positive of the column's query also answers the row's query."""
        return ~self.negative_BM[:, self.positive_B]


Loss = Callable[[LossBatch], Tensor]
"""`loss(batch)`: a scalar to minimise."""


def retriever_loss(batch: LossBatch, temperature: float, alpha: float, form: str) -> Tensor:
    """The contrastive loss or, with a teacher, KL plus `alpha` times the contrastive loss (SimLM eq. 5)."""
    contrast = contrastive_loss(batch, temperature, form)
    if batch.candidate_BK is None or batch.teacher_BK is None or batch.known_BK is None:
        return contrast
    student_BK = (batch.queries_BD @ batch.passages_MD.T / temperature).gather(1, batch.candidate_BK)
    return distillation_loss(student_BK, batch.teacher_BK, batch.known_BK) + alpha * contrast


def contrastive_loss(batch: LossBatch, temperature: float, form: str = "simlm") -> Tensor:
    """-log phi(q, d+) / (phi(q, d+) + sum over the form's blocks), mean over the queries; phi(a, b) = exp(a . b / t).

    `form` is a row of `FORMS`. "simlm" is SimLM eq. 3, which sums phi(q, n) + phi(d+, n). "plain" is the softmax over
    q . p alone (CDMAE eq. 10 with in-batch negatives). "simlm_code" is the loss in the code of SimLM's authors.
    d+ is the query's positive, and n its negatives in the batch. With vectors of length 1 the dot product is a cosine.
    Retrievers 1 and 2 use this loss; the distilled retriever adds it to the KL term.
    """
    blocks = [(scores / temperature, negative) for scores, negative in (BLOCKS[name](batch) for name in FORMS[form])]
    positive_scores_B = blocks[0][0].gather(1, batch.positive_B[:, None]).squeeze(1)
    nothing = torch.finfo(positive_scores_B.dtype).min
    masked = [scores.masked_fill(~negative, nothing) for scores, negative in blocks]
    terms = torch.cat([positive_scores_B[:, None], *masked], dim=1)
    return (terms.logsumexp(dim=1) - positive_scores_B).mean()


def _query_query(batch: LossBatch) -> tuple[Tensor, Tensor]:
    """q . q' with the queries that no passage of the batch answers together with q."""
    right_BM = (~batch.negative_BM).float()
    return batch.queries_BD @ batch.queries_BD.T, right_BM @ right_BM.T == 0


def _positive_positive(batch: LossBatch) -> tuple[Tensor, Tensor]:
    """d+ . d+' with the positives that answer no query of the batch together with d+; each passage counts once."""
    right_BB = batch.right_BB().float()
    same_BB = batch.positive_B[:, None] == batch.positive_B
    first_B = same_BB.int().argmax(dim=1) == torch.arange(len(same_BB), device=same_BB.device)
    return batch.positives_BD @ batch.positives_BD.T, (right_BB.T @ right_BB == 0) & first_B


BLOCKS: Mapping[str, Callable[[LossBatch], tuple[Tensor, Tensor]]] = {
    # q . n
    "query_passage": lambda batch: (batch.queries_BD @ batch.passages_MD.T, batch.negative_BM),
    # d+ . n, where n is a negative of the query of d+
    "positive_passage": lambda batch: (batch.positives_BD @ batch.passages_MD.T, batch.negative_BM),
    # d+ . q' with the queries that d+ does not answer
    "positive_query": lambda batch: (batch.positives_BD @ batch.queries_BD.T, ~batch.right_BB().T),
    "query_query": _query_query,
    "positive_positive": _positive_positive,
}
"""Scores with a row for each query, [B, M] or [B, B], and which of them are negatives. Every block leaves out a query
with its own answer, two answers to one query, two queries with a common answer, and each text with itself."""


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


def listwise_loss(scores_BK: Tensor, candidate_BK: Tensor) -> Tensor:
    """-log softmax of the positive's score (column 0) over the query's candidates (SimLM eq. 4); mean of queries.

    Candidates where `candidate_BK` is false are padding. Unlike here, `contrastive_loss` counts other queries'
    candidates too.
    """
    nothing = torch.finfo(scores_BK.dtype).min
    return -scores_BK.masked_fill(~candidate_BK, nothing).log_softmax(dim=1)[:, 0].mean()
