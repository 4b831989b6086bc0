"""The training loop that every training shares: AdamW, linear schedule, held-out loss, exact resume.

A training gives two functions: `batch_loss(step)`, the loss of the step's batch, and `heldout_loss()`, the loss of
fixed held-out examples. Everything random is drawn from (seed, step), so a run that was killed goes on from its last
checkpoint to the same parameters that an unbroken run reaches.
"""

from __future__ import annotations

import csv
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from stillhouse.context import Context
from stillhouse.training.precision import autocast
from stillhouse.training.settings import TrainingConfig

CHECKPOINT = "checkpoint.pt"
SECONDS_BETWEEN_CHECKPOINTS = 60.0


@dataclass(frozen=True)
class CurveRow:
    """One point of the curves: losses after `step` steps. `train_loss` is the mean since the row before."""

    step: int
    train_loss: float
    heldout_loss: float


def train(
    model: nn.Module,
    batch_loss: Callable[[int], Tensor],
    heldout_loss: Callable[[], float],
    steps: int,
    config: TrainingConfig,
    context: Context,
) -> list[CurveRow]:
    """Trains `model` in place and leaves it with the parameters of the lowest held-out loss.

    `batch_loss` is called in training mode under autocast, `heldout_loss` in evaluation mode without gradients.
    Raises `FloatingPointError` when a loss is not finite; the last checkpoint stays in `context.work`.
    """
    device = context.torch_device()
    model.to(device)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=config.learning_rate, weight_decay=config.weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate_factor(step, steps, config.warmup)
    )
    every = config.heldout_every or max(1, steps // 10)

    def measure() -> float:
        model.eval()
        torch.manual_seed(config.seed)
        with torch.no_grad(), autocast(config.precision, device):
            loss = float(heldout_loss())
        model.train()
        if not math.isfinite(loss):
            raise FloatingPointError(f"the held-out loss is {loss}; lower the learning rate")
        return loss

    checkpoint = Checkpoint(context.work / CHECKPOINT, model, optimizer, schedule)
    rows, best, losses, start = checkpoint.restore()
    if not rows:
        loss = measure()
        rows.append(CurveRow(0, loss, loss))
        best = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
    elif start:
        context.log(f"resumed after step {start} of {steps}")
    saved = time.monotonic()
    model.train()
    with context.bar("training", steps, "step", done=start) as bar:
        for step in range(start, steps):
            torch.manual_seed(config.seed * 1_000_003 + step)
            with autocast(config.precision, device):
                loss_value = batch_loss(step)
            losses.append(float(loss_value.detach()))
            if not math.isfinite(losses[-1]):
                raise FloatingPointError(f"the loss is {losses[-1]} at step {step}; lower the learning rate")
            loss_value.backward()
            if config.clip:
                nn.utils.clip_grad_norm_(parameters, config.clip)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad(set_to_none=True)
            bar.update(1)
            if (step + 1) % every == 0 or step + 1 == steps:
                heldout = measure()
                rows.append(CurveRow(step + 1, sum(losses) / len(losses), heldout))
                losses = []
                bar.set_postfix(train=f"{rows[-1].train_loss:.3f}", heldout=f"{heldout:.3f}")
                if heldout <= min(row.heldout_loss for row in rows):
                    best = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
            # When a checkpoint is written has no bearing on the result, so the clock may decide.
            if step + 1 < steps and time.monotonic() - saved >= SECONDS_BETWEEN_CHECKPOINTS:
                checkpoint.save(rows, best, losses, step + 1)
                saved = time.monotonic()
    model.load_state_dict(best)
    model.eval()
    return rows


def learning_rate_factor(step: int, steps: int, warmup: float) -> float:
    """The factor on the peak learning rate: rises linearly over `warmup * steps`, then falls linearly to 0."""
    rise = math.ceil(warmup * steps)
    if step < rise:
        return (step + 1) / rise
    return max(0.0, (steps - step) / max(1, steps - rise))


def best_row(rows: list[CurveRow]) -> CurveRow:
    """The row whose parameters `train` kept."""
    return min(reversed(rows), key=lambda row: row.heldout_loss)


def describe(rows: list[CurveRow]) -> str:
    """A line for the log."""
    best = best_row(rows)
    change = f"{rows[0].heldout_loss:.3f} to {best.heldout_loss:.3f}"
    return f"{rows[-1].step} steps, held-out loss {change} (step {best.step})"


def write_curves(folder: Path, rows: list[CurveRow]) -> None:
    """Writes `curves.csv`, the form that `dvc plots` and the report read."""
    with (folder / "curves.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["step", "train_loss", "heldout_loss"])
        writer.writerows([row.step, f"{row.train_loss:.6f}", f"{row.heldout_loss:.6f}"] for row in rows)


@dataclass(frozen=True)
class Checkpoint:
    """Everything that a resumed run needs, replaced whole at every save."""

    path: Path
    model: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LambdaLR

    def save(self, rows: list[CurveRow], best: dict[str, Tensor], losses: list[float], step: int) -> None:
        content = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "rows": [[row.step, row.train_loss, row.heldout_loss] for row in rows],
            "best": best,
            "losses": losses,
            "step": step,
        }
        partial = self.path.with_suffix(".partial")
        with partial.open("wb") as file:
            torch.save(content, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(self.path)

    def restore(self) -> tuple[list[CurveRow], dict[str, Any], list[float], int]:
        """The curves so far, the best parameters, the losses since the last row and the number of steps done.

        All empty where there is no checkpoint.
        """
        if not self.path.is_file():
            return [], {}, [], 0
        content = torch.load(self.path, map_location="cpu", weights_only=True)
        self.model.load_state_dict(content["model"])
        self.optimizer.load_state_dict(content["optimizer"])
        self.schedule.load_state_dict(content["schedule"])
        return [CurveRow(*row) for row in content["rows"]], content["best"], content["losses"], content["step"]
