"""The settings that every training has. No torch here: step modules read it to declare their flags."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.errors import InputError

PADDING = ("auto", "none", "kept")


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Length, batch, optimiser and precision of a training."""

    epochs: float = setting(
        3.0, "passes over the training examples, at least one step; 0 = max_steps alone decides", minimum=0
    )
    max_steps: int = setting(0, "stop after this many steps; 0 = after the epochs", minimum=0)
    batch_size: int = setting(64, "training examples a step", minimum=1)
    learning_rate: float = setting(2e-5, "peak learning rate of AdamW", minimum=0)
    warmup_ratio: float = setting(0.1, "fraction of the steps in which the learning rate rises", minimum=0, maximum=1)
    warmup_steps: int = setting(0, "the same as a number of steps; 0 = as warmup_ratio says", minimum=0)
    last_step: int = setting(
        0,
        "stop after this step, on the schedule of them all, as CDMAE does at 80k of 20 epochs; 0 = go to the end",
        minimum=0,
    )
    weight_decay: float = setting(0.0, "weight decay of AdamW, which leaves out biases and layer norms", minimum=0)
    max_grad_norm: float = setting(1.0, "gradients are scaled down to this norm; 0 = never", minimum=0)
    eval_steps: int = setting(0, "steps between two held-out losses; 0 = ten times a training", minimum=0)
    precision: str = setting(
        "auto", "auto = bf16 where the processor or GPU is faster in it, else fp32", choices=("auto", "fp32", "bf16")
    )
    padding: str = setting(
        "auto",
        "none = no padding is computed, attention is within each text; kept = texts are padded to the longest of their "
        "batch; auto = none on a CPU, kept on a GPU",
        choices=PADDING,
    )
    seed: int = setting(42, "seed of every random choice", minimum=0)


def require_parts(gradient_cache: bool, mini_batch_size: int) -> None:
    """Raises `InputError` for gradient caching of a batch that is one part."""
    if gradient_cache and not mini_batch_size:
        raise InputError("gradient_cache saves no memory without mini_batch_size; set that, to 64 for instance")
