"""`loss_mean: token` is the mean over all predicted tokens of a batch, however it is divided."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from passage_corpora import pretrained, tokenized, write_passages
from torch import Tensor
from transformers import AutoModelForMaskedLM, AutoTokenizer

from stillhouse.pretraining import heldout
from stillhouse.pretraining.corrupted import CorruptedBatch
from stillhouse.pretraining.model import BottleneckPretraining

STEPS = 3
SETTINGS = {"loss_mean": "token", "epochs": 10.0, "max_steps": STEPS, "batch_size": 8, "max_length": 32}
SETTINGS |= {"eval_steps": 1, "heldout_fraction": 0.4, "precision": "fp32", "learning_rate": 1e-3}
SETTINGS |= {"signals": False, "bucket_steps": None}
PASSAGES = 24
ON_ALL_TOKENS = {"simlm": ("encoder", "decoder"), "auto_regression": ("decoder",)}
"""The loss terms over all tokens of the passage; other terms are over masked tokens."""

Seen = list[tuple[bool, dict[str, tuple[float, int]]]]
"""For each batch: whether it is for training, and the mean and number of tokens of each loss term."""


@pytest.fixture(scope="module")
def inputs(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write passages of 2 to 28 words, and a model whose head counts as trained because it is in the file."""
    folder = tmp_path_factory.mktemp("token_mean")
    lengths = [2 + (7 * n * n + 3 * n) % 27 for n in range(PASSAGES)]
    words = ["red", "bird", "sings", "the", "green", "tree", "grows"]
    texts = [" ".join(words[(n + i) % 7] for i in range(length)) for n, length in enumerate(lengths)]
    corpus = write_passages(folder / "corpus", texts, article_id=[f"a{n}" for n in range(PASSAGES)])
    AutoModelForMaskedLM.from_pretrained(tiny_model).save_pretrained(folder / "model")
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(folder / "model")
    return {"tokens": tokenized(folder / "tokens", corpus, folder / "model"), "init": folder / "model"}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """Record the terms of every batch and their numbers of tokens, counted from the inputs of the model."""
    found: Seen = []
    parts: Callable[[BottleneckPretraining, CorruptedBatch], dict[str, Tensor]] = BottleneckPretraining.parts

    def noted(model: BottleneckPretraining, batch: CorruptedBatch) -> dict[str, Tensor]:
        terms = parts(model, batch)
        masked = int(batch.encoder.mask_BL.sum())
        tokens = {"encoder": masked, "decoder": masked, "bag_of_words": len(batch.ids_BL)}
        if batch.decoder is not None:
            tokens["decoder"] = int(batch.decoder.mask_BL.sum())
        for name in ON_ALL_TOKENS.get(model.objective.name, ()):
            tokens[name] = int((~batch.special_BL).sum())
        found.append((model.training, {name: (float(term.detach()), tokens[name]) for name, term in terms.items()}))
        return terms

    monkeypatch.setattr(BottleneckPretraining, "parts", noted)
    return found


def over_all(batches: list[dict[str, tuple[float, int]]]) -> float:
    """Return the sum of all terms, each averaged over the tokens of all batches."""
    total = 0.0
    for name in batches[0]:
        sums = [mean * count for mean, count in (batch[name] for batch in batches)]
        total += sum(sums) / sum(batch[name][1] for batch in batches)
    return total


@pytest.mark.parametrize(
    "objective", ["mlm", "simlm", "condenser", "auto_encoding", "auto_regression", "autoencoder", "bow"]
)
def test_a_loss_is_the_mean_over_the_tokens_of_all_parts(
    objective: str, inputs: dict[str, Path], seen: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch has parts of 3, 3 and 2 passages, and held-out batches have 4. The bags of `bow` count per passage."""
    monkeypatch.setattr(heldout, "HELDOUT_BATCH", 4)
    given = inputs | ({"generator": inputs["init"]} if objective == "simlm" else {})
    pretrained(given, tmp_path, SETTINGS | {"objective": objective, "gradient_accumulation_steps": 3})
    with (tmp_path / "curves" / "curves.csv").open() as file:
        rows = list(csv.DictReader(file))
    training = [terms for trains, terms in seen if trains]
    measured = [terms for trains, terms in seen if not trains]
    assert len(training) == 3 * STEPS and len(measured) == 3 * (STEPS + 1)
    assert len({terms[name][1] for terms in training for name in terms}) > 3, "parts differ in tokens"
    for step in range(STEPS):
        assert float(rows[step + 1]["train_loss"]) == pytest.approx(over_all(training[3 * step :][:3]), rel=3e-6)
    for number, row in enumerate(rows):
        assert float(row["heldout_loss"]) == pytest.approx(over_all(measured[3 * number :][:3]), rel=3e-6)
