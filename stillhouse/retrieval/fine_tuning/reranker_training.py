"""Training the cross-encoder with the listwise loss (SimLM eq. 4) or with the binary cross-entropy of each pair.

Shape suffixes: B queries, K candidates of a query, column 0 its positive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stillhouse.acceleration.on_device import on_device
from stillhouse.context import Context
from stillhouse.corpus.store import Corpus, open_passage_texts
from stillhouse.corpus.text_file import TextFile
from stillhouse.curves import CurveRow
from stillhouse.retrieval.fine_tuning.dev_ranking import DevCandidates, score_by_reranker
from stillhouse.retrieval.fine_tuning.group_training import Reads, open_samplers, train_on_groups
from stillhouse.retrieval.fine_tuning.groups import GroupSampler
from stillhouse.retrieval.fine_tuning.losses import binary_cross_entropy, disagreement, listwise_loss
from stillhouse.retrieval.mining.negatives import Negatives
from stillhouse.retrieval.models.cross_encoder import CrossEncoder, PairTexts
from stillhouse.retrieval.settings import GroupTrainingConfig
from stillhouse.training.batches import chunks
from stillhouse.training.measurements import READS_OF_TRAINING

LOSSES = {"listwise": listwise_loss, "bce": binary_cross_entropy}
"""The losses of a query's scores by their names in settings."""


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """Which candidates a query gets. With `forward`, that many are drawn and the hardest `negatives` of them train."""

    negatives: int
    forward: int | None = None
    depth: int


@dataclass(frozen=True)
class DrawnPairs:
    """The candidates of some queries as tokens. `number_BK` is each candidate's number among `pairs`, or -1."""

    pairs: PairTexts
    number_BK: np.ndarray


class RerankerLoss:
    """The loss of a split's examples, in parts of some queries each that add up to it.

    Call it as `loss(split, loss.draw(split, examples_B, times_B))`.

    `of_scores(scores_BK, candidate_BK)` is the mean loss of a part's queries: `listwise_loss` or
    `binary_cross_entropy`. With `r_drop` > 0, training reads every pair twice with different dropout, and the loss is
    the mean of both losses plus `r_drop` times their `disagreement`. `mini_batch_size` limits the pairs of a part,
    which has at least one query.
    """

    def __init__(
        self,
        model: CrossEncoder,
        texts: TextFile | np.ndarray,
        samplers: Mapping[str, GroupSampler],
        drawing: Drawing,
        r_drop: float,
        mini_batch_size: int | None,
        device: torch.device,
        of_scores: Callable[[Tensor, Tensor], Tensor] = listwise_loss,
    ) -> None:
        self._model = model
        self._texts = texts
        self._samplers = samplers
        self._drawing = drawing
        self._r_drop = r_drop
        self._pairs_at_once = mini_batch_size
        self._device = device
        self._of_scores = of_scores

    def draw(self, split: str, examples_B: np.ndarray, times_B: np.ndarray) -> DrawnPairs:
        """The pairs of the examples, tokenized."""
        groups = self._samplers[split].draw(examples_B, times_B)
        query_BK = np.broadcast_to(examples_B[:, None], groups.rows_BK.shape)[groups.candidate_BK]
        texts = self._samplers[split].texts[query_BK]
        pairs = self._model.pairs(list(texts), list(self._texts[groups.rows_BK[groups.candidate_BK]]))
        number_BK = np.full(groups.rows_BK.shape, -1)
        number_BK[groups.candidate_BK] = np.arange(len(pairs))
        return DrawnPairs(pairs, number_BK)

    def __call__(self, split: str, drawn: DrawnPairs) -> Iterator[Tensor]:
        training = self._model.training
        number_BK = self._hardest(drawn) if training and self._drawing.forward else drawn.number_BK
        for part in self._parts(*number_BK.shape):
            pairs, known_BK = self._pairs(drawn.pairs, number_BK[part])
            scores_BK = self._scores(pairs, known_BK)
            loss = self._of_scores(scores_BK, known_BK)
            if training and self._r_drop:
                again_BK = self._scores(pairs, known_BK)
                both = (loss + self._of_scores(again_BK, known_BK)) / 2
                loss = both + self._r_drop * disagreement(scores_BK, again_BK, known_BK)
            yield loss * (len(part) / len(number_BK))

    def _hardest(self, drawn: DrawnPairs) -> np.ndarray:
        """The positive's pair, and the pairs of the negatives that the model scores highest without dropout."""
        scores_BK = torch.empty(drawn.number_BK.shape, device=self._device)
        self._model.eval()
        with torch.no_grad():
            for part in self._parts(*drawn.number_BK.shape):
                pairs, known_BK = self._pairs(drawn.pairs, drawn.number_BK[part])
                scores_BK[part] = self._scores(pairs, known_BK).masked_fill(~known_BK, -torch.inf)
        self._model.train()
        scores_BK[:, 0] = torch.inf
        order_BK = scores_BK.sort(dim=1, descending=True, stable=True).indices.cpu().numpy()
        best_BK = order_BK[:, : 1 + self._drawing.negatives]
        return np.take_along_axis(drawn.number_BK, best_BK, axis=1)

    def _parts(self, queries: int, candidates: int) -> list[np.ndarray]:
        return chunks(queries, max(1, self._pairs_at_once // candidates) if self._pairs_at_once else queries)

    def _pairs(self, pairs: PairTexts, number_BK: np.ndarray) -> tuple[tuple[Tensor, Tensor, Tensor], Tensor]:
        """The tensors of some pairs, and which candidates are pairs."""
        known_BK = number_BK >= 0
        return pairs.batch(number_BK[known_BK], self._device), on_device(known_BK, self._device)

    def _scores(self, pairs: tuple[Tensor, Tensor, Tensor], known_BK: Tensor) -> Tensor:
        return torch.zeros(known_BK.shape, device=self._device).masked_scatter(known_BK, self._model(*pairs))


def fit_reranker(
    model: CrossEncoder,
    corpus: Corpus,
    negatives: Negatives,
    config: GroupTrainingConfig,
    drawing: Drawing,
    r_drop: float,
    mini_batch_size: int | None,
    context: Context,
    loss_name: str = "listwise",
) -> list[CurveRow]:
    """Train `model` in place on the train queries and return its curves; dev queries choose the step to keep.

    The held-out loss covers all drawn candidates, read once without dropout. Raises `InputError` as `GroupSampler`
    does. A query without negatives teaches nothing and adds 0 to the listwise loss.
    """
    texts = open_passage_texts(corpus, context.work)
    drawn = drawing.forward or drawing.negatives
    samplers = open_samplers(corpus, negatives, drawn, drawing.depth, config.seed, context)
    device = context.torch_device()
    loss = RerankerLoss(model, texts, samplers, drawing, r_drop, mini_batch_size, device, LOSSES[loss_name])

    def score(candidates: DevCandidates) -> NDArray[np.float32]:
        return score_by_reranker(model, candidates, texts, context)

    passes = READS_OF_TRAINING * (2 if r_drop else 1)
    example = passes * (1 + drawing.negatives) + (1 + drawing.forward if drawing.forward else 0)
    reads = Reads(example=example, heldout=1 + drawn, passages_once=False)
    return train_on_groups(model, samplers, loss.draw, loss, score, reads, config, context)
