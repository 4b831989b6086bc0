"""Trains a retriever on both sides: with the contrastive loss alone, or with a teacher and eq. 5 of SimLM.

The other side's contrastive loss is `MultipleNegativesRankingLoss`. With a teacher it adds `DistillKLDivLoss`, and both
use vectors that are computed once. sentence-transformers has no such loss of its own; the closest, `MarginMSELoss`, is
another function. Combined like this, both sides compute the same number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from training_examples import Examples
from training_sides import (
    Padding,
    Setting,
    Side,
    counted,
    quiet_peer,
    settings_of_ours,
    settings_of_peer,
    step_ends,
    timed_training,
    unchanged,
)
from waiting import of_retriever

from stillhouse.corpus.text_file import TextFile
from stillhouse.retrieval.fine_tuning.retriever_training import RetrieverLoss
from stillhouse.retrieval.fine_tuning.teacher import Teacher, TeacherScores
from stillhouse.retrieval.models.encoder import BiEncoder
from stillhouse.retrieval.settings import RetrieverConfig

TEMPERATURE, ALPHA = 0.05, 0.2
"""sentence-transformers has the temperature's inverse, `scale`, at 20."""


@dataclass(frozen=True)
class Lengths:
    """How long texts are: cut at `most` tokens, and where they are `equal`, repeated before until all reach it."""

    most: int
    equal: bool

    def __str__(self) -> str:
        return f"all {self.most} tokens" if self.equal else f"natural, cut at {self.most}"


def lengthened(texts: Sequence[str], encoder: BiEncoder, lengths: Lengths) -> np.ndarray:
    """The texts, each repeated until it has `lengths.most` tokens where all shall be equally long."""
    long = texts
    while lengths.equal:
        short = encoder.passages(long).lengths() < lengths.most
        if not short.any():
            break
        long = [f"{text} {text}" if less else text for text, less in zip(long, short)]
    return np.array(long, dtype=object)


def ours(
    setting: Setting,
    examples: Examples,
    lengths: Lengths,
    teacher: Teacher | None = None,
    padding_setting: str = "auto",
) -> Side:
    encoder = BiEncoder.load(setting.model)
    sampler = examples.sampler()
    texts = TextFile([list(lengthened(examples.texts(), encoder, lengths))], setting.folder)
    sampler.texts = lengthened(list(sampler.texts), encoder, lengths)
    encoder.to(setting.clock.device).eval()
    config = settings_of_ours(
        RetrieverConfig,
        setting.precision,
        temperature=TEMPERATURE,
        alpha=ALPHA,
        contrastive="plain",
        padding=padding_setting,
    )
    loss = RetrieverLoss(encoder, texts, sampler, teacher, config, setting.clock.device)
    padding = Padding()

    def run(turn: int, at_step: Callable[[], None] = lambda: None) -> list[float]:
        def losses(number: int) -> Iterator[Tensor]:
            batch = examples.batches[turn * setting.steps + number]
            return loss.training(loss.draw(batch, np.zeros_like(batch)))

        with counted(encoder, padding, 1):
            seconds, waited = timed_training(encoder, losses, of_retriever(), config, setting, at_step)
        side.waiting.append(waited)
        return seconds

    with torch.inference_mode():
        first = float(loss.heldout(loss.draw(examples.batches[0], np.zeros_like(examples.batches[0]))))
    side = Side(run, first, padding)
    return side


def theirs(setting: Setting, examples: Examples, lengths: Lengths, teacher: Teacher | None = None) -> Side:
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    quiet_peer()
    clock = setting.clock
    encoder, own = SentenceTransformer(str(setting.model), device=str(clock.device)), BiEncoder.load(setting.model)
    texts = lengthened(examples.texts(), own, lengths)
    sampler = examples.sampler()
    queries = lengthened(list(sampler.texts), own, lengths)
    contrast = MultipleNegativesRankingLoss(encoder, scale=1 / TEMPERATURE)
    loss, padding = distillation(encoder, contrast) if teacher else contrast, Padding()

    def columns(chosen: np.ndarray) -> dict[str, list[str]]:
        rows_BK = examples.rows(chosen)
        negatives = {f"negative_{column}": texts[rows_BK[:, column]] for column in range(1, rows_BK.shape[1])}
        parts = {"anchor": queries[chosen], "positive": texts[rows_BK[:, 0]], **negatives}
        return {name: list(values) for name, values in parts.items()}

    def labels(chosen: np.ndarray) -> list[list[float]]:
        assert teacher
        groups = sampler.draw(chosen, np.zeros_like(chosen))
        found: list[list[float]] = TeacherScores(teacher, sampler).of(groups)[0].tolist()
        return found

    def run(turn: int) -> list[float]:
        timed = step_ends(clock)
        chosen = np.concatenate(examples.batches[turn * setting.steps : (turn + 1) * setting.steps])
        data = Dataset.from_dict(columns(chosen) | ({"label": labels(chosen)} if teacher else {}))
        with TemporaryDirectory(dir=setting.folder) as work, unchanged(encoder), counted(encoder[0], padding, 0):
            arguments = settings_of_peer(SentenceTransformerTrainingArguments, work, len(examples.batches[0]), setting)
            SentenceTransformerTrainer(encoder, arguments, data, loss=loss, callbacks=[timed]).train()
        return list(np.diff(timed.times))

    first = examples.batches[0]
    with torch.inference_mode():
        features = [encoder.preprocess(part) for part in columns(first).values()]
        on_device = [
            {name: each.to(clock.device) for name, each in part.items() if isinstance(each, Tensor)}
            for part in features
        ]
        scores_BK = torch.tensor(labels(first), device=clock.device) if teacher else None
        value = float(loss.eval()(on_device, scores_BK))
    return Side(run, value, padding)


def distillation(encoder: Any, contrast: Any) -> nn.Module:
    """KL divergence and `ALPHA` times the contrastive loss, by sentence-transformers' own of the same vectors."""
    from sentence_transformers.base.losses.merged_forward import embed_columns
    from sentence_transformers.sentence_transformer.losses import DistillKLDivLoss

    divergence = DistillKLDivLoss(encoder, student_temperature=TEMPERATURE, teacher_temperature=1.0)

    class Distillation(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model, self.divergence, self.contrast = encoder, divergence, contrast

        def forward(self, features: Any, labels: Tensor) -> Tensor:
            vectors = embed_columns(self.model, features)
            # It multiplies by the square of the student's temperature, which eq. 5 does not.
            kl = self.divergence.compute_loss_from_embeddings(vectors, labels) / TEMPERATURE**2
            weighted: Tensor = kl + ALPHA * self.contrast.compute_loss_from_embeddings(vectors, labels)
            return weighted

    return Distillation()
