"""Trains a retriever on both sides with the contrastive loss, `MultipleNegativesRankingLoss` on the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory

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
from benchmarks.waiting import of_retriever
from stillhouse.corpus.table_file import TextFile
from stillhouse.models.encoder import BiEncoder
from stillhouse.training.low_rank import SCALE, low_rank
from stillhouse.training.retriever_training import RetrieverLoss
from stillhouse.training.settings import RetrieverConfig

TEMPERATURE = 0.05
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
    setting: Setting, examples: Examples, lengths: Lengths, padding_setting: str = "auto", lora_rank: int = 0
) -> Side:
    encoder = BiEncoder.load(setting.model)
    sampler = examples.sampler()
    texts = TextFile([list(lengthened(examples.texts(), encoder, lengths))], setting.folder)
    sampler.texts = lengthened(list(sampler.texts), encoder, lengths)
    encoder.to(setting.clock.device).eval()
    chosen = {"temperature": TEMPERATURE, "contrastive": "plain", "padding": padding_setting}
    config = settings_of_ours(RetrieverConfig, setting.precision, **chosen)
    loss = RetrieverLoss(encoder, texts, sampler, None, config, setting.clock.device)
    padding = Padding()

    def run(turn: int) -> list[float]:
        def losses(number: int) -> Iterator[Tensor]:
            batch = examples.batches[turn * setting.steps + number]
            return loss.training(loss.draw(batch, np.zeros_like(batch)))

        with low_rank(encoder, lora_rank), counted(encoder, padding, 1):
            seconds, waited = timed_training(encoder, losses, of_retriever(), config, setting)
        side.waiting.append(waited)
        return seconds

    with torch.inference_mode():
        first = float(loss.heldout(loss.draw(examples.batches[0], np.zeros_like(examples.batches[0]))))
    side = Side(run, first, padding)
    return side


def theirs(setting: Setting, examples: Examples, lengths: Lengths, lora_rank: int = 0) -> Side:
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
    if lora_rank:
        from peft import LoraConfig

        encoder.add_adapter(LoraConfig(r=lora_rank, lora_alpha=SCALE * lora_rank, target_modules="all-linear"))
    texts = lengthened(examples.texts(), own, lengths)
    sampler = examples.sampler()
    queries = lengthened(list(sampler.texts), own, lengths)
    loss, padding = MultipleNegativesRankingLoss(encoder, scale=1 / TEMPERATURE), Padding()

    def columns(chosen: np.ndarray) -> dict[str, list[str]]:
        rows_BK = examples.rows(chosen)
        negatives = {f"negative_{column}": texts[rows_BK[:, column]] for column in range(1, rows_BK.shape[1])}
        parts = {"anchor": queries[chosen], "positive": texts[rows_BK[:, 0]], **negatives}
        return {name: list(values) for name, values in parts.items()}

    def run(turn: int) -> list[float]:
        timed = step_ends(clock)
        chosen = np.concatenate(examples.batches[turn * setting.steps : (turn + 1) * setting.steps])
        data = Dataset.from_dict(columns(chosen))
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
        value = float(loss.eval()(on_device, None))
    return Side(run, value, padding)
