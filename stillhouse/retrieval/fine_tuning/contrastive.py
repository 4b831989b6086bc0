"""The contrastive losses of a bi-encoder: named sums over blocks of scores, combined by `settings.FORMS`.

Shape suffixes: B queries, M passages of the batch (positives and hard negatives of all its queries), D width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from stillhouse.retrieval.settings import FORMS


@dataclass(frozen=True)
class Batch:
    """A batch's vectors, each query's positive as a vector and as a column, and the negatives of each query."""

    queries_BD: Tensor
    passages_MD: Tensor
    positives_BD: Tensor
    positive_B: Tensor
    negative_BM: Tensor

    def right_BB(self) -> Tensor:
        """Whether the positive of the column's query also answers the row's query."""
        return ~self.negative_BM[:, self.positive_B]


def contrastive_loss(
    queries_BD: Tensor,
    passages_MD: Tensor,
    positive_B: Tensor,
    negative_BM: Tensor,
    temperature: float,
    form: str = "simlm",
) -> Tensor:
    """-log phi(q, d+) / (phi(q, d+) + sum over the form's blocks), mean over the queries; phi(a, b) = exp(a . b / t).

    `form` is a row of `FORMS`. "simlm" is SimLM eq. 3, which sums phi(q, n) + phi(d+, n). "plain" is the softmax over
    q . p alone (CDMAE eq. 10 with in-batch negatives). "simlm_code" is the loss in the code of SimLM's authors.
    `positive_B` (int64) is the column of each query's positive d+. `negative_BM` (bool) is true where a passage of the
    batch is a negative n of the query: neither its positive nor another relevant passage. With vectors of length 1 the
    dot product is a cosine. Retrievers 1 and 2 use this loss; the distilled retriever adds it to the KL term.
    """
    batch = Batch(queries_BD, passages_MD, passages_MD[positive_B], positive_B, negative_BM)
    blocks = [(scores / temperature, negative) for scores, negative in (BLOCKS[name](batch) for name in FORMS[form])]
    positive_scores_B = blocks[0][0].gather(1, positive_B[:, None]).squeeze(1)
    nothing = torch.finfo(positive_scores_B.dtype).min
    masked = [scores.masked_fill(~negative, nothing) for scores, negative in blocks]
    terms = torch.cat([positive_scores_B[:, None], *masked], dim=1)
    return (terms.logsumexp(dim=1) - positive_scores_B).mean()


def _query_passage(batch: Batch) -> tuple[Tensor, Tensor]:
    """q . n"""
    return batch.queries_BD @ batch.passages_MD.T, batch.negative_BM


def _positive_passage(batch: Batch) -> tuple[Tensor, Tensor]:
    """d+ . n, where n is a negative of the query of d+."""
    return batch.positives_BD @ batch.passages_MD.T, batch.negative_BM


def _positive_query(batch: Batch) -> tuple[Tensor, Tensor]:
    """d+ . q' with the queries that d+ does not answer."""
    return batch.positives_BD @ batch.queries_BD.T, ~batch.right_BB().T


def _query_query(batch: Batch) -> tuple[Tensor, Tensor]:
    """q . q' with the queries that no passage of the batch answers together with q."""
    right_BM = (~batch.negative_BM).float()
    return batch.queries_BD @ batch.queries_BD.T, right_BM @ right_BM.T == 0


def _positive_positive(batch: Batch) -> tuple[Tensor, Tensor]:
    """d+ . d+' with the positives that answer no query of the batch together with d+; each passage counts once."""
    right_BB = batch.right_BB().float()
    same_BB = batch.positive_B[:, None] == batch.positive_B
    first_B = same_BB.int().argmax(dim=1) == torch.arange(len(same_BB), device=same_BB.device)
    return batch.positives_BD @ batch.positives_BD.T, (right_BB.T @ right_BB == 0) & first_B


BLOCKS: Mapping[str, Callable[[Batch], tuple[Tensor, Tensor]]] = {
    "query_passage": _query_passage,
    "positive_passage": _positive_passage,
    "positive_query": _positive_query,
    "query_query": _query_query,
    "positive_positive": _positive_positive,
}
"""Scores with a row for each query, [B, M] or [B, B], and which of them are negatives. Every block leaves out a query
with its own answer, two answers to one query, two queries with a common answer, and each text with itself."""
