"""Step `pretrain` on a ModernBERT: every objective learns, and other libraries read the result."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from torch import Tensor
from transformers import AutoModel, AutoModelForMaskedLM, AutoTokenizer

from stillhouse.artifacts import digest_files, read_manifest
from stillhouse.config import build
from stillhouse.pretraining.heads import head_parameters
from stillhouse.pretraining.model import BottleneckPretraining
from stillhouse.pretraining.objectives import NAMES
from stillhouse.steps.execute import execute
from stillhouse.steps.importance import STEP as IMPORTANCE
from stillhouse.steps.pretrain import STEP, Config
from stillhouse.steps.tokenize import STEP as TOKENIZE
from stillhouse.training import loop

HEAD = {"objective": "mlm", "trainable": "head", "max_steps": 100, "eval_steps": 50, "learning_rate": 0.1}
SHORT = {"epochs": 100.0, "max_steps": 6, "eval_steps": 2, "batch_size": 8, "max_length": 32}
SHORT |= {"heldout_fraction": 0.25, "precision": "fp32", "signals": False}


def pretrain(inputs: dict[str, Path], into: Path, **settings: Any) -> Path:
    outputs = {"encoder": into / "encoder", "curves": into / "curves"}
    execute(STEP, build(Config, SHORT | settings, "pretraining"), inputs, outputs)
    return outputs["encoder"]


def losses_of(folder: Path) -> list[float]:
    with (folder / "curves" / "curves.csv").open() as file:
        return [float(row["heldout_loss"]) for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def inputs(uneven_corpus: Path, tiny_modernbert: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the inputs of `pretrain`. The starting model, which is also the generator, has a trained head."""
    folder = tmp_path_factory.mktemp("prepared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STILLHOUSE_WORK", str(folder / "work"))
        tokens, importance = {"tokens": folder / "tokens"}, {"importance": folder / "importance"}
        execute(TOKENIZE, TOKENIZE.config(), {"corpus": uneven_corpus, "tokenizer": tiny_modernbert}, tokens)
        execute(IMPORTANCE, IMPORTANCE.config(), tokens, importance)
        head = pretrain(tokens | {"init": tiny_modernbert}, folder / "head", **HEAD)
    return tokens | importance | {"init": head, "generator": head}


def test_the_head_alone_is_trained(inputs: dict[str, Path], tiny_modernbert: Path) -> None:
    facts = read_manifest(inputs["init"]).facts
    assert facts["lm_head"] == "trained" and facts["masked_accuracy"] > facts["unigram_accuracy"] > 0
    before, after = (load_file(folder / "model.safetensors") for folder in (tiny_modernbert, inputs["init"]))
    assert all(torch.equal(value, after[f"model.{name}"]) for name, value in before.items())
    model = AutoModelForMaskedLM.from_pretrained(inputs["init"])
    assert head_parameters(model).keys() == {"head.dense.weight", "head.norm.weight", "decoder.bias"}
    assert head_parameters(model).keys() <= after.keys()


@pytest.mark.parametrize("objective", NAMES)
def test_every_objective_learns_and_padding_changes_nothing(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, objective: str
) -> None:
    backward, gradients = Tensor.backward, []
    seen: list[BottleneckPretraining] = []
    forward: Callable[..., Tensor] = BottleneckPretraining.forward

    def noted(model: BottleneckPretraining, *given: Any, **named: Any) -> Tensor:
        seen.append(model)
        return forward(model, *given, **named)

    def checked(loss: Tensor, *given: Any, **named: Any) -> None:
        backward(loss, *given, **named)
        learning = [parameter.grad for parameter in seen[-1].parameters() if parameter.grad is not None]
        gradients.append(all(bool(gradient.isfinite().all()) for gradient in learning))

    monkeypatch.setattr(BottleneckPretraining, "forward", noted)
    monkeypatch.setattr(Tensor, "backward", checked)
    settings: dict[str, Any] = {"objective": objective, "max_steps": 30, "learning_rate": 1e-2, "eval_steps": 3}
    pretrain(inputs, tmp_path / "kept", padding="kept", last_step=3, **settings)
    pretrain(inputs, tmp_path / "auto", **settings)
    assert gradients and all(gradients)
    losses = losses_of(tmp_path / "auto")
    assert min(losses) < losses[0]
    np.testing.assert_allclose(losses_of(tmp_path / "kept"), losses[:2], rtol=1e-4)


def test_other_libraries_read_the_encoder(inputs: dict[str, Path], tmp_path: Path) -> None:
    folder = pretrain(inputs, tmp_path, objective="simlm")
    texts = ["the red bird sings and grows in the tree", "a tree grows in the green"]
    batch = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    whole, info = AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    with torch.no_grad():
        states_BLD = AutoModel.from_pretrained(folder).eval()(**batch).last_hidden_state
        torch.testing.assert_close(
            whole.eval()(**batch).logits,
            torch.nn.functional.linear(whole.head(states_BLD), *whole.decoder.parameters()),
        )
    vectors_BD = torch.nn.functional.normalize(states_BLD[:, 0], dim=1)
    found_BD = SentenceTransformer(str(folder), device="cpu").encode(texts)
    np.testing.assert_allclose(found_BD, vectors_BD, atol=1e-5)


@pytest.mark.parametrize("towers", ["shared", "separate"])
def test_pair_tasks_train_towers(inputs: dict[str, Path], tmp_path: Path, towers: str) -> None:
    settings: dict[str, Any] = {"query_length": 16, "passage_length": 32, "temperature": 0.1, "max_steps": 20}
    settings |= {"learning_rate": 3e-3, "heldout_fraction": 0.4, "towers": towers, "projection": 8}
    folder = pretrain(inputs, tmp_path, objective="ict", **settings)
    losses = losses_of(tmp_path)
    assert min(losses) < losses[0]
    assert SentenceTransformer(str(folder), device="cpu").encode_query(["the red bird"]).shape == (1, 8)


@pytest.mark.parametrize("objective", ["simlm_joint", "enhanced_decoding", "cdmae_bow"])
def test_a_killed_run_resumes_to_the_same_parameters(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, objective: str
) -> None:
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    unbroken = digest_files(pretrain(inputs, tmp_path / "unbroken", objective=objective))
    forward: Callable[..., Tensor] = BottleneckPretraining.forward
    steps = 0

    def killed_at_the_fifth(model: BottleneckPretraining, *given: Any, **named: Any) -> Tensor:
        nonlocal steps
        steps += model.training
        if steps == 5:
            raise KeyboardInterrupt
        return forward(model, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr(BottleneckPretraining, "forward", killed_at_the_fifth)
        with pytest.raises(KeyboardInterrupt):
            pretrain(inputs, tmp_path / "broken", objective=objective)
    monkeypatch.setattr(BottleneckPretraining, "forward", killed_at_the_fifth)
    steps = 10  # from here on it only counts
    assert digest_files(pretrain(inputs, tmp_path / "broken", objective=objective)) == unbroken
    assert steps == 12, "the last two of six steps are left"
