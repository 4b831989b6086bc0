"""The settings shared by all training. No torch here, because step modules read them to declare their flags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stillhouse.config import setting
from stillhouse.errors import InputError
from stillhouse.training.measurements import ENOUGH, FEWEST, MOST, READS_OF_TRAINING


def precision_setting() -> Any:
    """The precision of training, encoding and scoring."""
    return setting(
        "auto", "auto = bf16 if it is faster on the processor or GPU, else fp32", choices=("auto", "fp32", "bf16")
    )


def mini_batch_setting(of: str = "") -> Any:
    """How many texts are encoded together; `of` restricts it in the help text."""
    return setting(
        None,
        f"{of}queries or passages encoded together, grouped by length; null = the whole batch, or groups of similar "
        "length if faster",
        minimum=1,
    )


def gradient_cache_setting(of: str = "") -> Any:
    """Whether a batch's texts are encoded twice; `of` restricts it in the help text."""
    return setting(False, f"{of}encode every text twice, so a batch needs the memory of mini_batch_size texts")


def patience_setting() -> Any:
    """When to stop without improvement."""
    return setting(
        None,
        "stop after this many measurements in a row without improvement; null = never",
        minimum=1,
    )


def eval_share_setting(default: float | None, null: str, heldout: str = "dev queries", text: str = "text") -> Any:
    """The share of a training that its measurements may read (`measurements.within`); `null` says what null means."""
    return setting(
        default,
        f"without eval_steps, measurements read at most this share of what training reads; a trained {text} counts "
        f"{READS_OF_TRAINING} times. To fit, {MOST} measurements become {FEWEST}, then {heldout} become fewer, down "
        f"to {ENOUGH}, then measurements again, then {heldout}. null = {null}",
        minimum=0,
        maximum=1,
    )


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Length, batch, optimiser and precision of a training."""

    epochs: float | None = setting(
        3.0, "passes over the training examples, at least one step; null = only max_steps counts", minimum=0
    )
    max_steps: int | None = setting(None, "stop after this many steps; null = after the epochs", minimum=1)
    batch_size: int = setting(64, "examples per step", minimum=1)
    learning_rate: float = setting(2e-5, "peak learning rate of AdamW", minimum=0)
    warmup_ratio: float = setting(0.1, "fraction of steps with a rising learning rate", minimum=0, maximum=1)
    warmup_steps: int | None = setting(None, "the same as a number of steps; null = use warmup_ratio", minimum=1)
    last_step: int | None = setting(
        None,
        "stop after this step of the full schedule, as CDMAE does at 80k of 20 epochs; null = run to the end",
        minimum=1,
    )
    weight_decay: float = setting(0.0, "weight decay of AdamW, except for biases and layer norms", minimum=0)
    max_grad_norm: float | None = setting(1.0, "scale gradients down to this norm; null = never", minimum=0)
    eval_steps: int | None = setting(None, "steps between held-out losses; null = ten per training", minimum=1)
    precision: str = precision_setting()
    padding: str = setting(
        "auto",
        "none = compute no padding, with attention within each text; kept = pad texts to the longest in the batch; "
        "auto = none on a CPU, kept on a GPU",
        choices=("auto", "none", "kept"),
    )
    seed: int = setting(42, "seed of every random choice", minimum=0)


def require_parts(gradient_cache: bool, mini_batch_size: int | None) -> None:
    """Raises `InputError` for gradient caching of a batch with a single part."""
    if gradient_cache and not mini_batch_size:
        raise InputError("gradient_cache saves no memory without mini_batch_size; set it, for example to 64")
