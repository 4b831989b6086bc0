"""Training a bi-encoder: groups of a step become vectors, vectors become the loss of 001 eq. 3, with a teacher eq. 5.

Shape suffixes: B queries, K candidates of a query, M passages of the batch, D width.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from stillhouse.context import Context
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.retrieval.contrastive import contrastive_loss
from stillhouse.retrieval.distillation import distillation_loss
from stillhouse.retrieval.encoder import BiEncoder, EncoderTexts
from stillhouse.retrieval.group_training import open_samplers, train_on_groups
from stillhouse.retrieval.groups import Groups, GroupSampler
from stillhouse.retrieval.negatives import Negatives
from stillhouse.retrieval.teacher import Teacher, TeacherScores
from stillhouse.training.curves import CurveRow
from stillhouse.training.settings import TrainingConfig


class RetrieverLoss:
    """The loss of one group of examples of a split.

    Every passage of the batch counts once, however often it was drawn, and is a negative of every query that it is not
    relevant to: so neither the same passage nor another positive of a query is pushed away from it.
    """

    def __init__(
        self,
        encoder: BiEncoder,
        texts: np.ndarray,
        sampler: GroupSampler,
        teacher: Teacher | None,
        temperature: float,
        alpha: float,
        device: torch.device,
    ) -> None:
        self._encoder = encoder
        self._texts = texts
        self._sampler = sampler
        self._teacher = TeacherScores(teacher, sampler) if teacher else None
        self._temperature = temperature
        self._alpha = alpha
        self._device = device

    def __call__(self, examples_B: np.ndarray, stream: int) -> Tensor:
        """001 eq. 3, or KL + alpha * eq. 3 where there is a teacher (eq. 5)."""
        groups = self._sampler.draw(examples_B, stream)
        rows_M, places = np.unique(groups.rows_BK[groups.candidate_BK], return_inverse=True)
        places_BK = np.zeros(groups.rows_BK.shape, dtype=np.int64)
        places_BK[groups.candidate_BK] = places
        queries_BD = self._vectors(self._encoder.queries(list(self._sampler.texts[examples_B])))
        passages_MD = self._vectors(self._encoder.passages(list(self._texts[rows_M])))
        with torch.autocast(self._device.type, enabled=False):
            negative_BM = self._tensor(~self._sampler.relevant(examples_B, rows_M))
            positive_B = self._tensor(places_BK[:, 0])
            contrast = contrastive_loss(queries_BD, passages_MD, positive_B, negative_BM, self._temperature)
            if self._teacher is None:
                return contrast
            return self._divergence(groups, places_BK, queries_BD, passages_MD) + self._alpha * contrast

    def _divergence(self, groups: Groups, places_BK: np.ndarray, queries_BD: Tensor, passages_MD: Tensor) -> Tensor:
        assert self._teacher is not None
        teacher_BK, known_BK = self._teacher.of(groups)
        scores_BM = queries_BD @ passages_MD.T / self._temperature
        student_BK = scores_BM.gather(1, self._tensor(places_BK))
        return distillation_loss(student_BK, self._tensor(teacher_BK), self._tensor(known_BK))

    def _vectors(self, texts: EncoderTexts) -> Tensor:
        return self._encoder(*texts.batch(range(len(texts)), self._device), texts.role)

    def _tensor(self, array: np.ndarray) -> Tensor:
        return torch.from_numpy(array).to(self._device)


def train_retriever(
    encoder: BiEncoder,
    corpus: Corpus,
    negatives: Negatives,
    teacher: Teacher | None,
    config: TrainingConfig,
    negatives_per_query: int,
    negatives_depth: int,
    temperature: float,
    alpha: float,
    context: Context,
) -> list[CurveRow]:
    """Trains `encoder` in place on the train queries and returns its curves; dev queries give the held-out loss."""
    texts = np.array(passage_texts(corpus), dtype=object)
    samplers = open_samplers(corpus, negatives, negatives_per_query, negatives_depth, config.seed, context)
    device = context.torch_device()
    losses = {
        split: RetrieverLoss(encoder, texts, sampler, teacher, temperature, alpha, device)
        for split, sampler in samplers.items()
    }
    return train_on_groups(
        encoder, samplers, lambda split, examples_B, stream: losses[split](examples_B, stream), config, context
    )
