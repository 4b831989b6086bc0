"""Pre-training by the project's own loop on a GPU: reproducible, resumed exactly, on another device too, and in several
processes.

Run by torchrun, this file trains in one of several processes, or as one would: `python FILE FOLDER`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, distributed

pytest.importorskip("sentencex", reason="sentencex, which finds sentences for pair tasks, is not installed")
from varied_passages import SPECIALS, VOCABULARY, tiny_bert, varied_passages

from stillhouse.core.context import Context, rank, world_size
from stillhouse.core.curves import CurveRow
from stillhouse.models.acceleration import processes
from stillhouse.models.acceleration.batches import Ahead
from stillhouse.pretraining import bottleneck_loss
from stillhouse.pretraining.bottleneck_loss import BottleneckLoss
from stillhouse.pretraining.corrupted import Corruptor
from stillhouse.pretraining.generator import Generator
from stillhouse.pretraining.model import BottleneckPretraining
from stillhouse.pretraining.settings import PretrainingConfig
from stillhouse.training import loop
from stillhouse.training.batches import epoch_batches
from stillhouse.training.loop import train

STEPS, KILLED_AT = 12, 7
TRAINED, HELD_OUT = 64, 16
SETTINGS: dict[str, Any] = {"batch_size": 16, "eval_steps": 3, "learning_rate": 0.003, "weight_decay": 0.01}
SETTINGS |= {"max_length": 60, "passage_length": 60, "precision": "fp32", "seed": 5}
SAME, OTHER = 0.05, 0.3
"""Two ends of a training, as a share of the way from its start: at most `SAME` apart although kernels may sum in any
order, and more than `OTHER` with other dropout. On the CPU another order of sums puts them 0.00002 apart. A generator's
sample that falls on a boundary may become another token, which then puts them further apart."""
CURVES = 3e-3
"""The difference of the losses of two trainings that are the same but for the order of sums."""
IN_TWO = {"gradient_accumulation_steps": 2, "eval_steps": 1}
"""One process computes the same two parts of a batch as two processes."""
NAMES = pytest.mark.parametrize("name", ["bow", "simlm", "simlm_joint"])


@dataclass(frozen=True)
class Trained:
    """The parameters at the start and the end, on the CPU, and the curves."""

    start: dict[str, Tensor]
    end: dict[str, Tensor]
    rows: list[CurveRow]


def pretrained(
    name: str, work: Path, device: str, dropout: float = 0.1, stop_at: int | None = None, **more: Any
) -> Trained:
    """Train a small BERT by an objective for a few steps, as `pretrain` does. Being killed is a `KeyboardInterrupt`."""
    work.mkdir(exist_ok=True)
    config = PretrainingConfig(objective=name, **{**SETTINGS, **more})
    row, context = config.row(), Context(work, device, quiet=True)
    place, learns = context.torch_device(), row.generator != "frozen"
    generator = Generator.of(tiny_bert(1), SPECIALS, place, learns) if row.needs_generator else None
    learner = generator.model if generator and learns else None
    module = BottleneckPretraining(tiny_bert(2, dropout), row, "cls", generator=learner)
    start = parameters_of(module)
    make = Corruptor(varied_passages(TRAINED + HELD_OUT, 60), VOCABULARY, row, config, place, generator)
    loss = BottleneckLoss(module, make, config, np.arange(TRAINED, TRAINED + HELD_OUT))
    batch = epoch_batches(TRAINED, config.batch_size, config.seed)

    def losses(step: int) -> Iterable[Tensor]:
        if step == stop_at:
            raise KeyboardInterrupt
        return loss.training(drawn(step), step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
        patch.setattr(loop, "best_row", lambda rows, metric: rows[-1])
        with Ahead(lambda step: loss.draw(batch(step), step), STEPS) as drawn:
            rows = train(module, losses, loss.heldout, STEPS, config, context)
    assert next(module.parameters()).device.type == place.type
    return Trained(start, parameters_of(module), rows)


def parameters_of(module: torch.nn.Module) -> dict[str, Tensor]:
    """All but keys' biases, whose gradient is nothing but rounding."""
    found = {name: values.detach().cpu().clone() for name, values in module.named_parameters()}
    return {name: values for name, values in found.items() if not name.endswith("key.bias")}


def apart(one: Trained, other: Trained) -> float:
    """The distance of the ends of two trainings, as a share of the way from the start of the first."""
    ends, others, starts = (
        torch.cat([values[name].flatten() for name in one.end]) for values in (one.end, other.end, one.start)
    )
    return float((ends - others).norm() / (ends - starts).norm())


def assert_same(one: Trained, other: Trained) -> None:
    assert [row.step for row in one.rows] == [row.step for row in other.rows]
    for left, right in zip(one.rows, other.rows):
        assert left.train_loss == pytest.approx(right.train_loss, abs=CURVES)
        assert left.heldout_loss == pytest.approx(right.heldout_loss, abs=CURVES)
    assert apart(one, other) <= SAME


@pytest.mark.parametrize("padding", ["kept", "none"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@NAMES
def test_a_killed_run_resumes_to_the_same_parameters(
    tmp_path: Path, name: str, precision: str, padding: str, device: torch.device
) -> None:
    """Parameters, AdamW's averages and the random numbers of dropout continue as in an undisturbed run."""
    options = {"precision": precision, "padding": padding}
    whole = pretrained(name, tmp_path / "whole", device.type, **options)
    assert whole.rows[-1].heldout_loss < whole.rows[0].heldout_loss - 0.1, "nothing was learnt"
    with pytest.raises(KeyboardInterrupt):
        pretrained(name, tmp_path / "resumed", device.type, stop_at=KILLED_AT, **options)
    assert len(list((tmp_path / "resumed").glob(f"checkpoint-{KILLED_AT}-*.pt"))) == 1
    resumed = pretrained(name, tmp_path / "resumed", device.type, **options)
    assert_same(whole, resumed)
    if device.type == "cpu":
        assert all(torch.equal(values, resumed.end[name]) for name, values in whole.end.items())


@NAMES
def test_two_runs_with_one_seed_agree_and_dropout_matters(tmp_path: Path, name: str, device: torch.device) -> None:
    one, again = (pretrained(name, tmp_path / number, device.type) for number in ("one", "again"))
    assert_same(one, again)
    assert apart(one, pretrained(name, tmp_path / "without", device.type, dropout=0.0)) > OTHER


@pytest.mark.parametrize("way", ["from the GPU to the CPU", "from the CPU to the GPU"])
def test_a_checkpoint_continues_on_another_device(tmp_path: Path, way: str, device: torch.device) -> None:
    """The fused AdamW finds its averages and its count of steps where its parameters are. There is no dropout."""
    first, second = (device.type, "cpu") if way.endswith("CPU") else ("cpu", device.type)
    whole = pretrained("bow", tmp_path / "whole", second, dropout=0.0)
    with pytest.raises(KeyboardInterrupt):
        pretrained("bow", tmp_path / "moved", first, dropout=0.0, stop_at=KILLED_AT)
    assert_same(whole, pretrained("bow", tmp_path / "moved", second, dropout=0.0))


def test_gradients_summed_over_nccl_are_those_of_one_process(tmp_path: Path, device: torch.device) -> None:
    """torchrun starts one process, which takes every path of several: NCCL sums what it has alone."""
    launch(1, tmp_path, device)
    alone = pretrained("simlm", tmp_path / "alone", device.type)
    assert apart(alone, Trained(alone.start, load_file(tmp_path / "summed.safetensors"), [])) <= SAME


def test_two_processes_on_one_gpu_train_the_same_encoder_as_one(tmp_path: Path, device: torch.device) -> None:
    """Gloo sums the gradients, since NCCL needs a GPU for each process. The curves agree to 1e-5 after the first step;
    later, rounding moves them apart."""
    launch(2, tmp_path, device)
    alone = pretrained("bow", tmp_path / "alone", device.type, **IN_TWO)
    curves = np.load(tmp_path / "curves.npy")
    expected = [(row.train_loss, row.heldout_loss) for row in alone.rows]
    np.testing.assert_allclose(curves[:2], expected[:2], rtol=1e-5)
    np.testing.assert_allclose(curves, expected, atol=CURVES)
    assert apart(alone, Trained(alone.start, load_file(tmp_path / "summed.safetensors"), [])) <= SAME


def launch(count: int, folder: Path, device: torch.device) -> None:
    command = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", __file__, str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    environment |= {"STILLHOUSE_TEST_DEVICE": device.type}
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment, timeout=120)
    assert (folder / "summed.safetensors").is_file(), done.stdout + done.stderr


def alone_as_one_of_several(folder: Path, device: str) -> Trained:
    """Train as one of several processes would, although there is no other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "world_size", lambda: 2)
        patch.setattr(bottleneck_loss, "own_parts", range)
        trained = pretrained("simlm", folder / "work", device)
        assert distributed.get_backend() == ("nccl" if device == "cuda" else "gloo")
        assert processes.agreed({"step": 3}) == {"step": 3}
        processes.wait_for_all()
    return trained


def with_another(folder: Path, device: str) -> Trained:
    os.environ["LOCAL_RANK"] = "0"  # both use the first GPU
    distributed.init_process_group("gloo")
    return pretrained("bow", folder / f"work{rank()}", device, **IN_TWO)


def main(folder: Path) -> None:
    processes.BUCKET = 1  # so that most gradients are sent during the backward pass
    device = os.environ["STILLHOUSE_TEST_DEVICE"]
    trained = (with_another if world_size() > 1 else alone_as_one_of_several)(folder, device)
    if not rank():
        np.save(folder / "curves.npy", [(row.train_loss, row.heldout_loss) for row in trained.rows])
        save_file(trained.end, folder / "summed.safetensors")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
