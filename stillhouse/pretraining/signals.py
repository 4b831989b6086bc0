"""Cheap indicators of retrieval quality on held-out passages, measured during pre-training.

Shape suffixes: B passages or queries, L tokens, D hidden width, E width of the word embeddings, V vocabulary, K ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from stillhouse.models.pooling import pool
from stillhouse.pretraining.corrupted import CorruptedBatch
from stillhouse.pretraining.cross_entropy import token_cross_entropy
from stillhouse.pretraining.heads import family_of, last_states, output_matrix
from stillhouse.pretraining.pairs.batch import PairBatch

Encode = Callable[[Tensor, Tensor], Tensor]
"""From ids and attention mask [B, L] to vectors [B, D]."""

MLM_LOSS = "heldout_mlm_loss"
MLM_RATE = 0.15
"""The mask rate of `heldout_mlm_loss`, the same for all objectives so that they can be compared."""
ICT = "ict_RR@10"
COVERAGE_RANKS = (1, 2, 5, 10, 20, 50, 100)
COVERAGE_RANK = 20
COVERAGE = f"coverage@{COVERAGE_RANK}"


@dataclass(frozen=True)
class Signals:
    """Measures an encoder during training. Call it in evaluation mode without gradients.

    `masked`: held-out passages masked as `mlm` does, the same for every call; `pairs`: sentences of held-out passages
    and the rest of each passage (ICT, Chang et al. §3), empty if every passage has one sentence. `towers`: the query
    and passage encoders if pair tasks train more than the pooled vector.
    """

    model: PreTrainedModel
    pooling: str
    normalize: bool
    masked: Sequence[CorruptedBatch]
    pairs: Sequence[PairBatch] = field(default_factory=list)
    towers: tuple[Encode, Encode] | None = None

    def __call__(self) -> Mapping[str, float]:
        """`heldout_mlm_loss` (BoW §3.2), `coverage@20` (BoW Algorithm 1), and `ict_RR@10` if there are pairs."""
        values = {MLM_LOSS: self.mlm_loss(), COVERAGE: self.coverage([COVERAGE_RANK])[COVERAGE_RANK]}
        return values | ({ICT: self.ict()} if self.pairs else {})

    def vectors(self, ids_BL: Tensor, attention_BL: Tensor) -> Tensor:
        """The pooled vectors [B, D] of texts."""
        return pool(last_states(self.model, ids_BL, attention_BL), attention_BL, self.pooling)

    def mlm_loss(self) -> float:
        """Mean cross-entropy over all masked tokens of the held-out passages (BoW §3.2)."""
        weight_VE, bias_V = output_matrix(self.model)
        total, positions = 0.0, 0
        for batch in self.masked:
            hidden_BLD = last_states(self.model, batch.encoder.ids_BL, batch.attention_BL)
            states_NE = family_of(self.model).transform(self.model)(hidden_BLD[batch.encoder.mask_BL])
            targets_N = batch.ids_BL[batch.encoder.mask_BL]
            ones_N = torch.ones(len(targets_N), device=targets_N.device)
            total += float(token_cross_entropy(states_NE, weight_VE, bias_V, targets_N, ones_N))
            positions += len(targets_N)
        return total / max(1, positions)

    def coverage(self, ranks: Sequence[int]) -> dict[int, float]:
        """Input-token coverage at every k of `ranks`, averaged over the unmasked held-out passages.

        The word embeddings project the vector to the vocabulary (BoW eq. 11), or the whole language-model head if they
        are narrower than the vector.
        """
        totals, passages = dict.fromkeys(ranks, 0.0), 0
        for batch in self.masked:
            logits_BV = self._project(batch)
            for rank, shares_B in zip(ranks, token_coverage(logits_BV, batch.ids_BL, batch.special_BL, ranks)):
                totals[rank] += float(shares_B.sum())
            passages += len(batch.ids_BL)
        return {rank: total / max(1, passages) for rank, total in totals.items()}

    def nearest_tokens(self, passages: int, rank: int) -> tuple[Tensor, Tensor, Tensor]:
        """The first `passages` held-out passages and the tokens that their vectors rank first.

        Returns the ids of the passages, int64 [B, L], the ids of their vectors' top `rank` tokens, int64 [B, K], and
        whether each of these is in the passage, bool [B, K], as in `token_coverage`.
        """
        batch = self.masked[0]
        logits_BV = self._project(batch)[:passages]
        ids_BL, special_BL = batch.ids_BL[:passages], batch.special_BL[:passages]
        top_BK = logits_BV.topk(rank, dim=1).indices
        hits_BK = tokens_inside(ids_BL, special_BL, logits_BV.shape[1]).gather(1, top_BK)
        return ids_BL.cpu(), top_BK.cpu(), hits_BK.cpu()

    def _project(self, batch: CorruptedBatch) -> Tensor:
        """The vectors of a batch's unmasked passages, projected to the vocabulary [B, V]."""
        weight_VE, bias_V = output_matrix(self.model)
        states_BE = self.vectors(batch.ids_BL, batch.attention_BL)
        narrow = weight_VE.shape[1] != states_BE.shape[1]
        if narrow:
            states_BE = family_of(self.model).transform(self.model)(states_BE)
        return functional.linear(states_BE, weight_VE, bias_V if narrow else None)

    def ict(self) -> float:
        """RR@10 of finding the rest of a held-out passage by one of its sentences, among the rests of all."""
        queries, passages = self.towers or (self._text_vectors, self._text_vectors)
        queries_BD = torch.cat([queries(of.query_ids_BL, of.query_attention_BL).float() for of in self.pairs])
        passages_BD = torch.cat([passages(of.passage_ids_BL, of.passage_attention_BL).float() for of in self.pairs])
        # In bf16 nearly equal scores become ties, and ties count against the encoder.
        with torch.autocast(queries_BD.device.type, enabled=False):
            scores_BB = queries_BD @ passages_BD.T
        own_B1 = scores_BB.diagonal()[:, None]
        # Ties count against the encoder, so one that gives every text the same vector finds nothing.
        rank_B = (scores_BB >= own_B1).sum(1)
        return float(torch.where(rank_B <= 10, 1.0 / rank_B, 0.0).mean())

    def _text_vectors(self, ids_BL: Tensor, attention_BL: Tensor) -> Tensor:
        """The vectors that retrieval would compare."""
        vectors_BD = self.vectors(ids_BL, attention_BL).float()
        return functional.normalize(vectors_BD, dim=1) if self.normalize else vectors_BD


def token_coverage(logits_BV: Tensor, ids_BL: Tensor, special_BL: Tensor, ranks: Sequence[int]) -> list[Tensor]:
    """For every k of `ranks`, |top-k tokens of the vector and tokens of the text| / |tokens of the text|, [B].

    This is BoW Algorithm 1; a text's tokens are a set without special tokens. A text without tokens has coverage 0.
    """
    inside_BV = tokens_inside(ids_BL, special_BL, logits_BV.shape[1])
    size_B = inside_BV.sum(1).clamp(min=1)
    top_BK = logits_BV.topk(min(max(ranks), logits_BV.shape[1]), dim=1).indices
    hits_BK = inside_BV.gather(1, top_BK).cumsum(1)
    return [hits_BK[:, min(rank, hits_BK.shape[1]) - 1] / size_B for rank in ranks]


def tokens_inside(ids_BL: Tensor, special_BL: Tensor, vocabulary: int) -> Tensor:
    """Which tokens of the vocabulary a text has, bool [B, V]; special tokens and padding do not count."""
    inside_BV = torch.zeros(len(ids_BL), vocabulary, dtype=torch.bool, device=ids_BL.device)
    inside_BV.scatter_(1, ids_BL.masked_fill(special_BL, 0), True)
    # Special tokens and padding were marked as token 0, which counts only if the text contains it.
    inside_BV[:, 0] = ((ids_BL == 0) & ~special_BL).any(1)
    return inside_BV
