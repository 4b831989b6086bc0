"""Step `pretrain` on a ModernBERT: every objective learns, and other libraries read the result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from passage_corpora import losses_of, pretrained, tokenized
from torch import Tensor

from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.importance import STEP as IMPORTANCE
from stillhouse.pretraining.model import BottleneckPretraining
from stillhouse.pretraining.objectives import NAMES

HEAD = {"objective": "mlm", "trainable": "head", "max_steps": 100, "eval_steps": 50, "learning_rate": 0.1}
SHORT = {"epochs": 100.0, "max_steps": 6, "eval_steps": 2, "batch_size": 8, "max_length": 32}
SHORT |= {"heldout_fraction": 0.25, "precision": "fp32", "signals": False}


def pretrain(inputs: dict[str, Path], into: Path, **settings: Any) -> Path:
    return pretrained(inputs, into, SHORT | settings)


@pytest.fixture(scope="module")
def inputs(uneven_corpus: Path, tiny_modernbert: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the inputs of `pretrain`. The base model, which is also the generator, has a trained head."""
    folder = tmp_path_factory.mktemp("prepared")
    tokens = {"tokens": tokenized(folder / "tokens", uneven_corpus, tiny_modernbert)}
    importance = {"importance": folder / "importance"}
    execute(IMPORTANCE, IMPORTANCE.config(), tokens, importance)
    head = pretrain(tokens | {"init": tiny_modernbert}, folder / "head", **HEAD)
    return tokens | importance | {"init": head, "generator": head}


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
    settings: dict[str, Any] = {"objective": objective, "max_steps": 12, "learning_rate": 1e-2, "eval_steps": 3}
    pretrain(inputs, tmp_path / "kept", padding="kept", last_step=3, **settings)
    pretrain(inputs, tmp_path / "auto", **settings)
    assert gradients and all(gradients)
    losses = losses_of(tmp_path / "auto" / "curves")
    assert min(losses) < losses[0]
    np.testing.assert_allclose(losses_of(tmp_path / "kept" / "curves"), losses[:2], rtol=1e-4)
