"""Measurements during pre-training, and any number of kills, do not change what it learns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from passage_corpora import pretrained, tokenized
from torch import Tensor
from transformers import AutoModelForMaskedLM

from stillhouse.core.artifacts import digest_files
from stillhouse.pretraining.model import BottleneckPretraining
from stillhouse.training import loop

SHORT = {"objective": "bow", "max_steps": 6, "eval_steps": 6, "batch_size": 8, "max_length": 32, "epochs": 50.0}
SHORT |= {"heldout_fraction": 0.25, "precision": "fp32", "learning_rate": 3e-3, "encoder_mlm_probability": 0.5}
SCHEDULES = {"bucket_steps": 4, "gradient_accumulation_steps": 2}


@pytest.fixture(scope="module")
def inputs(small_corpus: Path, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("watched")
    tokens = tokenized(folder / "tokens", small_corpus, tiny_model)
    head = {"objective": "mlm", "max_steps": 80, "learning_rate": 0.03}
    return {"tokens": tokens, "init": pretrain({"tokens": tokens, "init": tiny_model}, folder, **head)}


def pretrain(inputs: dict[str, Path], into: Path, **settings: Any) -> Path:
    return pretrained(inputs, into, SHORT | settings)


def test_signals_change_nothing(inputs: dict[str, Path], tmp_path: Path) -> None:
    watched, unwatched = (pretrain(inputs, tmp_path / str(on), signals=on) for on in (True, False))
    assert digest_files(watched)["model.safetensors"] == digest_files(unwatched)["model.safetensors"]
    assert (tmp_path / "True" / "curves" / "signals.csv").exists()
    assert not (tmp_path / "False" / "curves" / "signals.csv").exists()


@pytest.mark.parametrize("killed_at", [2, 5, 9])
def test_a_killed_run_keeps_its_schedules(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: int
) -> None:
    """Schedules are length buckets and batch parts, even after a kill between two parts."""
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    forward: Callable[..., Tensor] = BottleneckPretraining.forward
    batches: list[list[int]] = []

    def recorded(model: BottleneckPretraining, batch: Any) -> Tensor:
        if model.training:
            batches.append(batch.ids_BL.flatten().tolist())
            if len(batches) == kill:
                raise KeyboardInterrupt
        return forward(model, batch)

    monkeypatch.setattr(BottleneckPretraining, "forward", recorded)
    kill = 0
    unbroken = pretrain(inputs, tmp_path / "unbroken", **SCHEDULES)
    whole, kill = batches.copy(), killed_at
    batches.clear()
    assert len(whole) == 12
    with pytest.raises(KeyboardInterrupt):
        pretrain(inputs, tmp_path / "broken", **SCHEDULES)
    kill = 0
    batches.clear()
    resumed = pretrain(inputs, tmp_path / "broken", **SCHEDULES)
    assert batches == whole[(killed_at - 1) // 2 * 2 :], "from the first part of the step in which it was killed"
    left, right = (AutoModelForMaskedLM.from_pretrained(folder).state_dict() for folder in (unbroken, resumed))
    for name, value in left.items():
        assert torch.equal(right[name], value), name
