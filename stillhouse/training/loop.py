"""The shared training loop: AdamW, linear schedule, held-out loss, exact resume.

A training supplies two functions: `batch_loss(step)`, the loss of the step's batch, and `heldout_losses()`, the size
and the mean loss of each batch of fixed held-out examples. All random numbers are drawn from (seed, step), so a killed
run continues from its last checkpoint to the same parameters as an uninterrupted run. A `Watch` adds signals to the
held-out losses.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from contextlib import closing, nullcontext
from operator import length_hint
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from stillhouse.core.context import Context, rank
from stillhouse.core.curves import HELDOUT_LOSS, CurveRow, Watch, best_row, stopped
from stillhouse.core.errors import NotFinite
from stillhouse.core.monitoring.activity import doing
from stillhouse.models.acceleration.device import autocast
from stillhouse.models.acceleration.memory import freed_memory_kept
from stillhouse.models.acceleration.processes import GradientSum, add_up, agreed, join
from stillhouse.models.acceleration.replaced import bf16_residuals, fast_linear_layers
from stillhouse.models.acceleration.unpadded import leaves_padding_out, without_padding
from stillhouse.training.checkpoint import Checkpoint, trained_state
from stillhouse.training.intervals import interval_of, interval_of_batches
from stillhouse.training.settings import TrainingConfig

SECONDS_BETWEEN_CHECKPOINTS = 60.0
REMEDY = "lower learning_rate, raise warmup_ratio, or look for damaged texts among the examples"
"""What to do about a loss or gradient that is not finite."""


def train(
    model: nn.Module,
    batch_loss: Callable[[int], Tensor | Iterable[Tensor]],
    heldout_losses: Callable[[], Iterable[tuple[int, Tensor | float]]],
    steps: int,
    config: TrainingConfig,
    context: Context,
    watch: Watch | None = None,
    examples: Callable[[int], np.ndarray] | None = None,
) -> list[CurveRow]:
    """Train `model` in place and leave it with the parameters of the best row of its curves (`best_row`).

    `batch_loss` is called in training mode under autocast, `heldout_losses` in evaluation mode without gradients. If
    `batch_loss` gives several losses, the step's loss is their sum. Each is back-propagated before the next is
    computed, so a large batch needs the memory of a small one. If their number is known, the last one's backward pass
    and the sum of the gradients over several processes overlap. `examples(step)` names a batch's examples in messages.
    Raises `NotFinite` if a loss or gradient is not finite; it names the step, the examples and the last
    checkpoint, which stays in `context.work`.
    """
    watch = watch or Watch()
    device = context.torch_device()
    join(device)
    model.to(device)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(decay_groups(model, config.weight_decay), lr=config.learning_rate, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: learning_rate_factor(step, steps, config.warmup_steps or math.ceil(config.warmup_ratio * steps)),
    )
    every = config.eval_steps or max(1, steps // 10)
    last = min(steps, config.last_step or steps)
    if config.warmup_steps and config.warmup_steps >= steps > 0:
        context.log(
            f"warmup_steps {config.warmup_steps} is not below the {steps} steps of this training: the learning rate "
            f"would rise until the end, up to {config.learning_rate * steps / config.warmup_steps:.2g}; lower it"
        )

    def measured(step: int, train_losses: list[float]) -> CurveRow:
        model.eval()
        torch.manual_seed(config.seed)
        with doing("measuring the held-out loss"), torch.no_grad(), autocast(config.precision, device):
            batches = [(count, float(loss)) for count, loss in heldout_losses()]
        heldout = sum(count * loss for count, loss in batches) / sum(count for count, _ in batches)
        if not math.isfinite(heldout):
            raise fail(f"the held-out loss is {heldout}", max(0, step - 1), of_batch=False)
        with doing("measuring the signals"), torch.no_grad(), autocast(config.precision, device):
            values = watch.measure()
        model.train()
        intervals = {name: interval_of(value) for name, value in values.items() if isinstance(value, pd.Series)}
        if bounds := interval_of_batches(batches):
            intervals[HELDOUT_LOSS] = bounds
        signals = {name: float(np.mean(value)) for name, value in values.items()}
        train_loss = sum(train_losses) / len(train_losses) if train_losses else heldout
        return agreed(CurveRow(step, train_loss, heldout, signals, intervals))

    def fail(what: str, step: int, of_batch: bool = True) -> NotFinite:
        some = "" if examples is None or not of_batch else f", of the examples {', '.join(map(str, examples(step)))}"
        kept = f"the last good checkpoint, after step {saved_step}, is {checkpoint.last()}"
        none = "there is no checkpoint yet"
        return NotFinite(f"{what} at step {step}{some}; {kept if saved_step else none}; {REMEDY}")

    unpadded = without_padding(model) if leaves_padding_out(model, config.padding, device) else nullcontext()
    shorter = bf16_residuals(model, config.precision, device)
    summed = closing(GradientSum(parameters))
    with freed_memory_kept() as memory, fast_linear_layers(model, device), unpadded, shorter, summed as gradients:
        checkpoint = Checkpoint(context.work, model, optimizer, schedule, context.log)
        rows, best, losses, start = checkpoint.restore()
        saved_step = start
        if not rows:
            rows.append(measured(0, []))
            best = _copy(model)
        elif start:
            context.log(f"resumed after step {start} of {last}")
        context.monitor.curve(rows, last)
        saved, pause = time.monotonic(), seconds_between_checkpoints(0.0)
        model.train()
        with context.bar("training", last, "step", done=start) as bar:
            for step in range(start, last):
                torch.manual_seed(config.seed * 1_000_003 + step)
                total = back_propagate(batch_loss, step, config.precision, device, gradients)
                # An infinite limit leaves gradients unchanged but still gives their norm.
                length = nn.utils.clip_grad_norm_(parameters, config.max_grad_norm or math.inf)
                found, rate = torch.stack([total, length.to(total)]), float(schedule.get_last_lr()[0])
                optimizer.step()
                schedule.step()
                optimizer.zero_grad(set_to_none=True)
                # The only wait for the device in a step, after all of its work has been queued. The update of a loss
                # that is not finite is lost with the model: only checkpoints before it are kept.
                loss, norm = found.tolist()
                context.monitor.trained(loss, norm, rate, config.batch_size)
                if not math.isfinite(loss):
                    raise fail(f"the loss is {loss}", step)
                losses.append(loss)
                if not math.isfinite(norm):
                    raise fail(f"the gradient's norm is {norm}", step)
                memory.batch_done()
                bar.update(1)
                if (step + 1) % every == 0 or step + 1 == last:
                    row = measured(step + 1, losses)
                    rows.append(row)
                    losses = []
                    context.monitor.measured(row.heldout_loss, row.signals)
                    context.monitor.curve(rows, last)
                    shown = {name: f"{value:.3f}" for name, value in row.signals.items()}
                    bar.set_postfix(train=f"{row.train_loss:.3f}", heldout=f"{row.heldout_loss:.3f}", **shown)
                    if best_row(rows, watch.metric) is row:
                        best = _copy(model)
                    if stopped(rows, watch):
                        context.log(f"stopped after step {step + 1} of {last}: no better {watch.metric} since")
                        break
                # The time of a checkpoint does not affect the result, so the clock may decide.
                if not rank() and step + 1 < last and time.monotonic() - saved >= pause:
                    begun = time.monotonic()
                    checkpoint.save(rows, best, losses, step + 1)
                    saved, saved_step = time.monotonic(), step + 1
                    pause = seconds_between_checkpoints(saved - begun)
    model.load_state_dict(best, strict=False)
    model.eval()
    return rows


def _copy(model: nn.Module) -> dict[str, Tensor]:
    """A copy of what training changes."""
    return {name: value.detach().cpu().clone() for name, value in trained_state(model).items()}


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """The trainable parameters as two groups for an optimiser: with `weight_decay` and without.

    The second group has all parameters with `bias` in their names and those of modules such as LayerNorm, as in BERT
    (Devlin et al. 2019, `exclude_from_weight_decay` of its `optimization.py`) and in the Trainer of transformers, which
    SimLM's code uses. Within a group, parameters keep the model's order. A group may be empty.
    """
    of_norms = {
        id(parameter)
        for module in model.modules()
        if type(module).__name__.endswith("Norm")  # of torch and of transformers, such as Qwen3RMSNorm
        for parameter in module.parameters(recurse=False)
    }
    decayed: list[nn.Parameter] = []
    exempt: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (exempt if "bias" in name or id(parameter) in of_norms else decayed).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": exempt, "weight_decay": 0.0}]


def seconds_between_checkpoints(took: float) -> float:
    """The seconds of training before the next checkpoint, given the time that the last one took to write.

    Checkpoints that take longer than a second are written less often, to stay below 2 % of the time.
    """
    return SECONDS_BETWEEN_CHECKPOINTS * max(1.0, took)


def learning_rate_factor(step: int, steps: int, rise: int) -> float:
    """The factor on the peak learning rate: rises linearly over the first `rise` steps, then falls linearly to 0."""
    if step < rise:
        return (step + 1) / rise
    return max(0.0, (steps - step) / max(1, steps - rise))


def back_propagate(
    batch_loss: Callable[[int], Tensor | Iterable[Tensor]],
    step: int,
    precision: str,
    device: torch.device,
    gradients: GradientSum,
) -> Tensor:
    """Add up the gradients of a step's losses in all processes and return the sum of the losses, a float64 scalar."""
    total = torch.zeros((), dtype=torch.float64, device=device)
    with autocast(precision, device):
        made = batch_loss(step)
        losses = [made] if isinstance(made, Tensor) else made
        number = length_hint(losses)  # 0: it is not known
        for place, loss in enumerate(losses, start=1):
            total += loss.detach()
            if place == number:
                gradients.begin()
            with torch.autocast(device.type, enabled=False):
                loss.backward()
    gradients.finish()
    add_up(total)
    return total
