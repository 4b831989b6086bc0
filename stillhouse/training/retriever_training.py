"""Training a bi-encoder with the contrastive loss, or with SimLM eq. 5 if there is a teacher.

Shape suffixes: B queries, K candidates of a query, M passages of the batch, N texts of both kinds, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stillhouse.core.context import Context
from stillhouse.core.curves import CurveRow
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus, open_passage_texts
from stillhouse.corpus.table_file import TextFile
from stillhouse.models.acceleration.device import on_device
from stillhouse.models.acceleration.unpadded import leaves_padding_out, transformers_in
from stillhouse.models.encoder import BiEncoder, EncoderTexts
from stillhouse.models.pooling import normalized
from stillhouse.training.dev_ranking import DevCandidates, score_by_retriever
from stillhouse.training.group_training import Reads, open_samplers, train_on_groups
from stillhouse.training.groups import GroupSampler
from stillhouse.training.joint_loss import BatchTexts, Losses, Part, joint_loss, joint_losses, make_parts
from stillhouse.training.losses import Loss, LossBatch, retriever_loss
from stillhouse.training.low_rank import checkpointed, low_rank
from stillhouse.training.measurements import READS_OF_TRAINING
from stillhouse.training.negatives import Negatives
from stillhouse.training.settings import RetrieverConfig
from stillhouse.training.teacher import Teacher, TeacherScores


@dataclass(frozen=True)
class DrawnGroups:
    """Groups of a step with tokenized texts, and the other inputs of the loss.

    `places_BK` are the candidates' places among the batch's distinct passages. `negative_BM` says which passages are
    negatives of a query. `teacher_BK` holds the candidates' scores and whether each is known.
    """

    queries: EncoderTexts
    passages: EncoderTexts
    places_BK: np.ndarray
    negative_BM: np.ndarray
    teacher_BK: tuple[np.ndarray, np.ndarray] | None


@dataclass
class RetrieverLoss:
    """The loss of some examples of a split: `loss.training(loss.draw(examples_B, times_B))`.

    Every passage of the batch counts once, however often it was drawn, and is a negative of every query that it does
    not answer. So no query is pushed away from any of its positives.
    """

    encoder: BiEncoder
    texts: TextFile | np.ndarray
    sampler: GroupSampler
    teacher: TeacherScores | None
    config: RetrieverConfig
    device: torch.device
    own: Loss | None = None
    """A loss in place of those of `config`."""
    unpadded: bool = field(init=False)

    def __post_init__(self) -> None:
        self.unpadded = leaves_padding_out(self.encoder, self.config.padding, self.device)

    def draw(self, examples_B: NDArray[np.int64], times_B: NDArray[np.int64]) -> DrawnGroups:
        """The groups of some examples, which were seen `times_B` times before. Drawing does not need the model."""
        groups = self.sampler.draw(examples_B, times_B)
        rows_M, places = np.unique(groups.rows_BK[groups.candidate_BK], return_inverse=True)
        places_BK = np.zeros(groups.rows_BK.shape, dtype=np.int64)
        places_BK[groups.candidate_BK] = places
        return DrawnGroups(
            self.encoder.queries(list(self.sampler.texts[examples_B])),
            self.encoder.passages(list(self.texts[rows_M])),
            places_BK,
            ~self.sampler.relevant(groups.examples_B, rows_M),
            self.teacher.of(groups) if self.teacher else None,
        )

    def training(self, drawn: DrawnGroups) -> Losses:
        """This process's share of a step's loss, to back-propagate (`joint_losses`)."""
        parts, vectors_ND, loss = self._batch(drawn, training=True)
        return joint_losses(parts, vectors_ND, loss, again=self.config.gradient_cache)

    def heldout(self, drawn: DrawnGroups) -> Tensor:
        """The loss without gradients; the same in every process."""
        return joint_loss(*self._batch(drawn, training=False))

    def _batch(self, drawn: DrawnGroups, training: bool) -> tuple[list[Part], Tensor, Callable[[Tensor], Tensor]]:
        """The parts of a batch's queries and passages, an array for their vectors, and the loss of the vectors."""
        count, config, device = len(drawn.queries), self.config, self.device
        of_batch = self.own or partial(
            retriever_loss, temperature=config.temperature, alpha=config.alpha, form=config.contrastive
        )
        negative_BM, candidate_BK = self._tensor(drawn.negative_BM), self._tensor(drawn.places_BK)
        teacher_BK, known_BK = map(self._tensor, drawn.teacher_BK) if drawn.teacher_BK else (None, None)

        def of_vectors(queries_BD: Tensor, passages_MD: Tensor) -> Tensor:
            value = of_batch(
                LossBatch(queries_BD, passages_MD, candidate_BK[:, 0], negative_BM, candidate_BK, teacher_BK, known_BK)
            )
            if value.ndim:
                raise InputError(f"the loss gives numbers of shape {list(value.shape)}; let it give one, a mean")
            return value

        def loss(vectors_ND: Tensor) -> Tensor:
            return self._over_widths(of_vectors, vectors_ND[:count], vectors_ND[count:])

        kinds = [BatchTexts(texts.lengths(), partial(self._encode, texts)) for texts in (drawn.queries, drawn.passages)]
        parts = make_parts(kinds, config.mini_batch_size, unpadded=self.unpadded, device=device, training=training)
        return parts, torch.zeros(count + len(drawn.passages), self.encoder.width, device=device), loss

    def _encode(self, texts: EncoderTexts, rows: np.ndarray) -> Tensor:
        return self.encoder(*texts.batch(rows, self.device), texts.role)

    def _over_widths(self, loss: Callable[[Tensor, Tensor], Tensor], queries_BD: Tensor, passages_MD: Tensor) -> Tensor:
        """The mean loss over vectors cut to each width and, for cosines, normalized again.

        This is Matryoshka representation learning (Kusupati et al. 2022, eq. 1) with equal weights.
        """
        losses = [loss(queries_BD, passages_MD)]
        for width in matryoshka_dims(self.config, self.encoder.width):
            cut = (queries_BD[:, :width], passages_MD[:, :width])
            losses.append(loss(*map(normalized, cut)) if self.encoder.settings.normalize else loss(*cut))
        return torch.stack(losses).mean() if losses[1:] else losses[0]

    def _tensor(self, array: np.ndarray) -> Tensor:
        return on_device(array, self.device)


def matryoshka_dims(config: RetrieverConfig, width: int) -> tuple[int, ...]:
    """The widths that vectors are cut to, without their full width. Raises `InputError` for a larger one."""
    widths = config.matryoshka_dims or ()
    if widths and widths[-1] > width:
        raise InputError(f"matryoshka_dims {list(widths)}: the encoder's vectors have only width {width}")
    return tuple(narrow for narrow in widths if narrow < width)


def fit_retriever(
    encoder: BiEncoder,
    corpus: Corpus,
    negatives: Negatives,
    teacher: Teacher | None,
    config: RetrieverConfig,
    context: Context,
    loss: Loss | None = None,
) -> list[CurveRow]:
    """Train `encoder` in place on the train queries and return its curves; dev queries choose the step to keep.

    `loss` replaces the losses of `config`. Raises `InputError` for a split without queries, and for batches of a single
    passage.
    """
    texts = open_passage_texts(corpus, context.work)
    drawn = config.negatives_per_query, config.negatives_depth
    samplers = open_samplers(corpus, negatives, *drawn, config.seed, context, teacher)
    train = samplers["train"]
    if min(config.batch_size, len(train)) == 1 and (
        not config.negatives_per_query or train.without_negatives == len(train)
    ):
        raise InputError(
            "nothing can be learned from a batch of one query without negatives: raise batch_size (with more than "
            "one train query), or negatives_per_query (with queries that have negatives)"
        )
    device = context.torch_device()
    for transformer in transformers_in(encoder):
        if (pooler := getattr(transformer, "pooler", None)) is not None:
            pooler.requires_grad_(False)  # vectors do not need it; several processes would wait for its gradient
    checkpoints = checkpointed(encoder, config.gradient_checkpointing)
    with low_rank(encoder, config.lora_rank, config.frozen_weights), checkpoints:
        losses = {
            split: RetrieverLoss(
                encoder, texts, sampler, TeacherScores(teacher, sampler) if teacher else None, config, device, loss
            )
            for split, sampler in samplers.items()
        }

        def draw(split: str, examples_B: NDArray[np.int64], times_B: NDArray[np.int64]) -> DrawnGroups:
            return losses[split].draw(examples_B, times_B)

        def of_split(split: str, drawn: DrawnGroups) -> Tensor | Losses:
            return (losses[split].training if split == "train" else losses[split].heldout)(drawn)

        def score(candidates: DevCandidates) -> NDArray[np.float32]:
            return score_by_retriever(encoder, candidates, texts, context)

        group = 2 + config.negatives_per_query
        reads = Reads(example=READS_OF_TRAINING * group, heldout=group, passages_once=True)
        return train_on_groups(encoder, samplers, draw, of_split, score, reads, config, context)
