"""The settings that every training has. No torch here: step modules read it to declare their flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stillhouse.acceleration.padding import PADDING
from stillhouse.config import setting
from stillhouse.errors import InputError


def precision_setting() -> Any:
    """The precision of a training, and of encoding and scoring."""
    return setting(
        "auto", "auto = bf16 where the processor or GPU is faster in it, else fp32", choices=("auto", "fp32", "bf16")
    )


def mini_batch_setting(of: str = "") -> Any:
    """How many texts are encoded together; `of` says for what alone."""
    return setting(
        None,
        f"{of}queries or passages of a batch encoded together, texts of like length; null = all of them, or those of "
        "like length where that is faster",
        minimum=1,
        former=0,
    )


def gradient_cache_setting(of: str = "") -> Any:
    """Whether a batch's texts are encoded twice; `of` says for what alone."""
    return setting(False, f"{of}encode every text twice, so that a batch takes the memory of mini_batch_size texts")


def patience_setting() -> Any:
    """When a training that measures itself gives up."""
    return setting(
        None,
        "stop after this many measurements in a row without a better one; null = never",
        minimum=1,
        former=0,
    )


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Length, batch, optimiser and precision of a training."""

    epochs: float | None = setting(
        3.0, "passes over the training examples, at least one step; null = max_steps alone decides", minimum=0, former=0
    )
    max_steps: int | None = setting(None, "stop after this many steps; null = after the epochs", minimum=1, former=0)
    batch_size: int = setting(64, "training examples a step", minimum=1)
    learning_rate: float = setting(2e-5, "peak learning rate of AdamW", minimum=0)
    warmup_ratio: float = setting(0.1, "fraction of the steps in which the learning rate rises", minimum=0, maximum=1)
    warmup_steps: int | None = setting(
        None, "the same as a number of steps; null = as warmup_ratio says", minimum=1, former=0
    )
    last_step: int | None = setting(
        None,
        "stop after this step, on the schedule of them all, as CDMAE does at 80k of 20 epochs; null = go to the end",
        minimum=1,
        former=0,
    )
    weight_decay: float = setting(0.0, "weight decay of AdamW, which leaves out biases and layer norms", minimum=0)
    max_grad_norm: float | None = setting(
        1.0, "gradients are scaled down to this norm; null = never", minimum=0, former=0
    )
    eval_steps: int | None = setting(
        None, "steps between two held-out losses; null = ten times a training", minimum=1, former=0
    )
    precision: str = precision_setting()
    padding: str = setting(
        "auto",
        "none = no padding is computed, attention is within each text; kept = texts are padded to the longest of their "
        "batch; auto = none on a CPU, kept on a GPU",
        choices=PADDING,
    )
    seed: int = setting(42, "seed of every random choice", minimum=0)


def require_parts(gradient_cache: bool, mini_batch_size: int | None) -> None:
    """Raises `InputError` for gradient caching of a batch that is one part."""
    if gradient_cache and not mini_batch_size:
        raise InputError("gradient_cache saves no memory without mini_batch_size; set that, to 64 for instance")
