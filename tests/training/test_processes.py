"""Two processes train the same model as one that computes the same parts, with the mean over the tokens of both."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from stillhouse.artifacts import read_manifest
from stillhouse.steps.execute import execute
from stillhouse.steps.tokenize import STEP as TOKENIZE

SETTINGS = {
    "objective": "mlm",
    "loss_mean": "token",
    "gradient_accumulation_steps": 2,
    "max_steps": 6,
    "batch_size": 8,
    "eval_steps": 2,
    "max_length": 32,
    "heldout_fraction": 0.25,
    "learning_rate": 0.03,
    "epochs": 100,
    "precision": "fp32",
}


@pytest.fixture(scope="module")
def tokens(small_corpus: Path, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("processes")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STILLHOUSE_WORK", str(folder / "work"))
        inputs = {"corpus": small_corpus, "tokenizer": tiny_model}
        execute(TOKENIZE, TOKENIZE.config(), inputs, {"tokens": folder / "tokens"})
    return folder / "tokens"


def start(tokens: Path, model: Path, folder: Path, processes: int, step: str = "pretrain") -> str:
    flags = [part for name, value in SETTINGS.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    command = command if processes > 1 else [sys.executable]
    command += ["-m", "stillhouse.cli", step, "--tokens", str(tokens), "--work", str(folder / "work")]
    if step == "pretrain":
        command += ["--init", str(model), "--encoder", str(folder / "encoder"), "--curves", str(folder / "curves")]
        command += flags
    else:
        command += ["--importance", str(folder / "importance")]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "STILLHOUSE_QUIET": ""}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=240)
    return done.stdout + done.stderr


@pytest.mark.long
def test_two_processes_train_the_same_model_as_one(tokens: Path, tiny_model: Path, tmp_path: Path) -> None:
    logs = [start(tokens, tiny_model, tmp_path / str(count), count) for count in (1, 2)]
    alone, both = (tmp_path / str(count) / "encoder" for count in (1, 2))
    assert alone.is_dir() and both.is_dir(), logs
    weights = [load_file(folder / "model.safetensors") for folder in (alone, both)]
    for name, value in weights[0].items():
        if name.endswith("key.bias"):  # its gradient is only rounding error, which AdamW scales to full steps
            continue
        torch.testing.assert_close(weights[1][name], value, rtol=0, atol=2e-5, msg=lambda text, name=name: name + text)
    curves = [(tmp_path / str(count) / "curves" / "curves.csv").read_text().splitlines() for count in (1, 2)]
    trained, losses = ([[float(row.split(",")[column]) for row in rows[1:]] for rows in curves] for column in (1, 2))
    assert losses[0][-1] < losses[0][0]
    assert trained[1] == pytest.approx(trained[0], abs=1e-4)
    assert losses[1] == pytest.approx(losses[0], abs=1e-4)
    assert read_manifest(both).facts["steps"] == 6
    assert logs[1].count("[pretrain] read") == 1, "one process alone writes and logs"


def test_other_steps_refuse_several_processes(tokens: Path, tiny_model: Path, tmp_path: Path) -> None:
    assert "start it without torchrun" in start(tokens, tiny_model, tmp_path, 2, "importance")
    assert not (tmp_path / "importance").exists()
