"""Trains a re-ranker on both sides: the listwise loss over a positive and its hard negatives (SimLM eq. 4).

The other side uses `ListNetLoss`, which is the same if one candidate has all of the labels' probability.
"""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.training_examples import Examples
from benchmarks.training_sides import (
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
from benchmarks.waiting import of_reranker
from stillhouse.corpus.table_file import TextFile
from stillhouse.models.cross_encoder import CrossEncoder
from stillhouse.training.reranker_training import RerankerLoss
from stillhouse.training.settings import TrainingConfig

CERTAIN = 100.0
"""The label of the positive, where the others' are 0: the softmax of the labels is then 1 for it."""


def start(encoder: Any, length: int, into: Any) -> None:
    """A cross-encoder on an encoder, with a random scoring layer."""
    torch.manual_seed(0)
    CrossEncoder.start(encoder, length).save(into)


def ours(setting: Setting, examples: Examples, padding_setting: str = "auto") -> Side:
    model = CrossEncoder.load(setting.model).to(setting.clock.device).eval()
    texts = TextFile([list(examples.texts())], setting.folder)
    loss = RerankerLoss(model, texts, {"train": examples.sampler()}, setting.clock.device)
    config = settings_of_ours(TrainingConfig, setting.precision, padding=padding_setting)
    padding = Padding()

    def losses(batch: np.ndarray) -> Iterator[Tensor]:
        return loss("train", loss.draw("train", batch, np.zeros_like(batch)))

    def run(turn: int) -> list[float]:
        with counted(model, padding, 1):
            seconds, waited = timed_training(
                model,
                lambda number: losses(examples.batches[turn * setting.steps + number]),
                of_reranker(),
                config,
                setting,
            )
        side.waiting.append(waited)
        return seconds

    with torch.inference_mode():
        first = sum(float(part) for part in losses(examples.batches[0]))
    side = Side(run, first, padding)
    return side


def theirs(setting: Setting, examples: Examples) -> Side:
    """All pairs of a step go through the model at once, as here."""
    from datasets import Dataset
    from sentence_transformers import CrossEncoder as Peer
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.losses import ListNetLoss

    quiet_peer()
    clock = setting.clock
    length = CrossEncoder.load(setting.model).max_length
    model = Peer(str(setting.model), max_length=length, device=str(clock.device))
    loss = ListNetLoss(model, mini_batch_size=-1)
    queries, texts = examples.sampler().texts, np.array(examples.texts(), dtype=object)
    padding = Padding()

    def columns(chosen: np.ndarray) -> dict[str, list[Any]]:
        rows_BK = examples.rows(chosen)
        labels = [[CERTAIN] + [0.0] * examples.count for _ in chosen]
        return {"query": list(queries[chosen]), "passages": [list(texts[row]) for row in rows_BK], "labels": labels}

    def run(turn: int) -> list[float]:
        timed = step_ends(clock)
        chosen = examples.batches[turn * setting.steps : (turn + 1) * setting.steps]
        data = Dataset.from_dict(columns(np.concatenate(chosen)))
        with TemporaryDirectory(dir=setting.folder) as work, unchanged(model), counted(model[0], padding, 0):
            arguments = settings_of_peer(CrossEncoderTrainingArguments, work, len(chosen[0]), setting)
            CrossEncoderTrainer(model, arguments, data, loss=loss, callbacks=[timed]).train()
        return list(np.diff(timed.times))

    asked, passages, labels = columns(examples.batches[0]).values()
    with torch.inference_mode():
        first = float(loss.eval()([asked, passages], [torch.tensor(each, device=clock.device) for each in labels]))
    return Side(run, first, padding)
