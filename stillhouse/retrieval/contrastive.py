"""The contrastive loss of a bi-encoder (001 eq. 3).

Shape suffixes: B queries, M passages of the batch (positives and hard negatives of all its queries), D width.
"""

from __future__ import annotations

import torch
from torch import Tensor


def contrastive_loss(
    queries_BD: Tensor, passages_MD: Tensor, positive_B: Tensor, negative_BM: Tensor, temperature: float
) -> Tensor:
    """001 eq. 3, mean over the queries:

        -log phi(q, d+) / (phi(q, d+) + sum_n (phi(q, n) + phi(d+, n))),   phi(a, b) = exp(a . b / temperature)

    `positive_B` (int64) is the column of each query's positive d+; `negative_BM` (bool) is true where a passage of the
    batch is a negative n of the query: not its positive, nor a passage that is relevant to it. Vectors of length 1 make
    the dot product a cosine. Used by retriever 1 and 2, and beside the KL term by the distilled retriever.
    """
    positives_BD = passages_MD[positive_B]
    query_scores_BM = queries_BD @ passages_MD.T / temperature
    passage_scores_BM = positives_BD @ passages_MD.T / temperature
    positive_scores_B = query_scores_BM.gather(1, positive_B[:, None]).squeeze(1)
    nothing = torch.finfo(query_scores_BM.dtype).min
    terms = torch.cat(
        [
            positive_scores_B[:, None],
            query_scores_BM.masked_fill(~negative_BM, nothing),
            passage_scores_BM.masked_fill(~negative_BM, nothing),
        ],
        dim=1,
    )
    return (terms.logsumexp(dim=1) - positive_scores_B).mean()
