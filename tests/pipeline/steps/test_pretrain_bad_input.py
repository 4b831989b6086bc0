"""What `pretrain` refuses before training, what it skips and counts, and losses that are not finite."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from passage_corpora import pretrained, tokenized, write_passages
from torch import Tensor
from transformers import AutoModelForMaskedLM

from stillhouse.core.errors import InputError
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.importance import STEP as IMPORTANCE
from stillhouse.pretraining.model import BottleneckPretraining
from stillhouse.pretraining.objectives import NAMES, find_objective
from stillhouse.training import loop

ORDINARY = [f"the {a} {b} sings in the tree" for a in ("red", "green", "blue") for b in ("bird", "fish", "tree", "one")]
ONE_TOKEN = ["red", "fish", "sings"]
NOTHING = ["zebra qqq zzz", "[MASK] [SEP]"]
"""Unknown words, and special tokens spelled out in a text: nothing in them can be predicted."""
SHORT = {"max_steps": 3, "eval_steps": 3, "batch_size": 6, "max_length": 16, "precision": "fp32", "epochs": 50.0}
SHORT |= {"heldout_fraction": 0.3, "learning_rate": 1e-3}


def with_head(bare: Path, folder: Path) -> Path:
    """Copy the bare model and add a language-model head, which no manifest marks as untrained."""
    shutil.copytree(bare, folder)
    torch.manual_seed(0)
    AutoModelForMaskedLM.from_pretrained(bare).save_pretrained(folder)
    return folder


@dataclass(frozen=True)
class Prepared:
    """`tokens` and `importance` of a corpus with odd passages, `plain` tokens of one without; `model` has a head."""

    tokens: Path
    importance: Path
    plain: Path
    plain_importance: Path
    model: Path
    bare: Path

    def inputs(self, **changes: Path) -> dict[str, Path]:
        given = {"tokens": self.tokens, "importance": self.importance, "init": self.model, "generator": self.model}
        return given | changes


@pytest.fixture(scope="module")
def prepared(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    folder = tmp_path_factory.mktemp("odd")
    odd_corpus = write_passages(folder / "odd_corpus", [*ONE_TOKEN, *ORDINARY, *NOTHING])
    odd = tokenized(folder / "tokens", odd_corpus, tiny_model)
    plain = tokenized(folder / "plain", write_passages(folder / "plain_corpus", ORDINARY[::-1]), tiny_model)
    for tokens, name in ((odd, "importance"), (plain, "plain_importance")):
        execute(IMPORTANCE, IMPORTANCE.config(), {"tokens": tokens}, {"importance": folder / name})
    model = with_head(tiny_model, folder / "model")
    return Prepared(odd, folder / "importance", plain, folder / "plain_importance", model, tiny_model)


def pretrain(inputs: dict[str, Path], into: Path, **settings: Any) -> Path:
    return pretrained(inputs, into, SHORT | settings)


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail if training starts, because a refusal must come before it."""

    def began(*_: object, **__: object) -> None:
        raise AssertionError("training began")

    monkeypatch.setattr("stillhouse.pretraining.run.train", began)


def refused(prepared: Prepared, into: Path, message: str, settings: dict[str, Any], **changes: Path) -> None:
    with pytest.raises(InputError, match=message):
        pretrain(prepared.inputs(**changes), into, **settings)
    assert not (into / "encoder").exists() and not (into / "curves").exists()


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("objective", [name for name in NAMES if find_objective(name).needs_importance])
def test_importance_of_another_corpus(prepared: Prepared, tmp_path: Path, objective: str) -> None:
    settings = {"objective": objective}
    message = "importance was made from another tokens than the --tokens given here; run step 'importance' again"
    refused(prepared, tmp_path, message, settings, importance=prepared.plain_importance)
    without = prepared.inputs()
    del without["importance"]
    with pytest.raises(InputError, match="needs the input importance; `stillhouse importance` makes it"):
        pretrain(without, tmp_path, **settings)


ARTICLES: dict[str, list[Any]] = {
    "article_id": [f"a{n // 3}" for n in range(12)],
    "position": [n % 3 for n in range(12)],
}
NO_PAIRS: dict[str, tuple[str, dict[str, list[Any]], str]] = {
    "bfs without articles": ("bfs", {}, "it needs articles of several passages with headings"),
    "bfs without sections": ("bfs", ARTICLES, "it needs articles of several passages with headings"),
    "wlp without articles": ("wlp", {}, "it needs links between articles"),
    "wlp without links": ("wlp", ARTICLES, "it needs links between articles"),
    "all three without links": (
        "ict+bfs+wlp",
        ARTICLES | {"section": ["", "more", "more"] * 4},
        "it needs links between articles",
    ),
    "ict of single sentences": ("ict", {}, "it needs passages of two sentences"),
}


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("case", NO_PAIRS)
def test_pair_tasks_on_a_corpus_that_has_no_such_pairs(prepared: Prepared, tmp_path: Path, case: str) -> None:
    objective, changes, message = NO_PAIRS[case]
    texts = [f"{text}. the fish swims." for text in ORDINARY] if "ict+" in objective else ORDINARY
    corpus = write_passages(tmp_path / "corpus", texts, **changes)
    tokens = tokenized(tmp_path / "tokens", corpus, prepared.bare)
    settings = {"objective": objective, "query_length": 16, "passage_length": 32}
    with pytest.raises(InputError, match=message) as caught:
        pretrain({"tokens": tokens, "init": prepared.bare}, tmp_path, **settings)
    assert "stillhouse ingest" in str(caught.value), "the remedy is named"


@pytest.mark.parametrize("kind", [torch.nan, torch.inf])
def test_a_loss_that_is_not_finite_names_step_passages_and_checkpoint(
    prepared: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: float
) -> None:
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    forward: Callable[..., Tensor] = BottleneckPretraining.forward
    steps = 0

    def spoilt(model: BottleneckPretraining, *inputs: Any, **weights: float) -> Tensor:
        nonlocal steps
        steps += model.training
        loss = forward(model, *inputs, **weights)
        return loss * kind if steps == 3 else loss

    monkeypatch.setattr(BottleneckPretraining, "forward", spoilt)
    with pytest.raises(FloatingPointError, match=f"the loss is {kind} at step 2") as caught:
        pretrain(prepared.inputs(), tmp_path, objective="bow", max_steps=5, bucket_steps=None)
    message = str(caught.value)
    named = message.split("of the examples ")[1].split(";")[0].split(", ")
    usable = range(len(ONE_TOKEN) + len(ORDINARY))
    assert len(set(named)) == SHORT["batch_size"] and {int(row) for row in named} <= set(usable)
    assert "the last good checkpoint, after step 2, is " in message
    path = Path(message.split("after step 2, is ")[1].split(";")[0])
    assert torch.load(path, weights_only=True)["step"] == 2
    assert not (tmp_path / "encoder").exists()
