"""The two sides of a training benchmark: the project's training loop, and a trainer of sentence-transformers.

`Side.run(turn)` trains for a few steps, does not count the first, and then restores the model.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from torch import Tensor, nn

from benchmarks.clock import Clock
from benchmarks.waiting import Waiting
from stillhouse.core.context import Context
from stillhouse.training.loop import train
from stillhouse.training.settings import TrainingConfig

OURS, PEER = "Stillhouse", "sentence-transformers"
LEARNING_RATE = 1e-6
"""So low that turns leave the model about as it was."""


@dataclass(frozen=True)
class Setting:
    """What both sides of a comparison are given."""

    model: Path
    precision: str
    steps: int
    clock: Clock
    folder: Path


@dataclass
class Padding:
    """Tokens of the texts, and those that a model computed for them, padding among these."""

    computed: int = 0
    tokens: Tensor | int = 0
    """On the device, so that counting waits for nothing."""

    def share(self) -> float:
        return 1 - float(self.tokens) / self.computed


@dataclass
class Side:
    """One of both in one setting: `run(turn)` gives the seconds of every step but the first.

    `loss` is that of the first batch without dropout, in fp32; `turns` are the medians of the turns. `waiting` are the
    shares of the counted steps' time that a turn waited for data, which our sides alone report.
    """

    run: Callable[..., list[float]]
    loss: float
    padding: Padding
    turns: list[float] = field(default_factory=list)
    waiting: list[float] = field(default_factory=list)

    def measure(self, turn: int) -> None:
        self.turns.append(float(np.median(self.run(turn))))


def timed_training(
    model: nn.Module,
    loss: Callable[[int], Iterator[Tensor]],
    waits_for: Sequence[tuple[type, str]],
    config: TrainingConfig,
    setting: Setting,
) -> tuple[list[float], float]:
    """The seconds of the steps but the first in the project's loop, and the share of them that was a wait for data."""
    times: list[float] = []
    waited: list[float] = []
    waiting = Waiting()

    def look() -> None:
        times.append(setting.clock())
        waited.append(waiting.seconds())

    def batch_losses(number: int) -> Iterator[Tensor]:
        look()
        yield from loss(number)

    def heldout_losses() -> list[tuple[int, float]]:
        look()
        return [(1, 0.0)]

    with TemporaryDirectory(dir=setting.folder) as work, unchanged(model), waiting.of(*waits_for):
        train(model, batch_losses, heldout_losses, setting.steps, config, Context(Path(work), quiet=True))
    # The first held-out loss comes before all steps.
    return list(np.diff(times[1:])[1:]), (waited[-1] - waited[2]) / (times[-1] - times[2])


def settings_of_ours(config: type[TrainingConfig], precision: str, **others: Any) -> Any:
    return config(precision=precision, learning_rate=LEARNING_RATE, eval_steps=10**9, **others)


def settings_of_peer(arguments: Callable[..., Any], work: str, batch: int, setting: Setting) -> Any:
    """Arguments of a trainer of sentence-transformers that takes a data set's rows in their order."""
    from sentence_transformers.base.sampler import DefaultBatchSampler
    from torch.utils.data import SequentialSampler

    def in_order(dataset: Any, **settings: Any) -> DefaultBatchSampler:
        return DefaultBatchSampler(SequentialSampler(dataset), **settings)

    return arguments(
        output_dir=work,
        max_steps=setting.steps,
        per_device_train_batch_size=batch,
        learning_rate=LEARNING_RATE,
        warmup_steps=1,
        bf16=setting.precision == "bf16",
        use_cpu=setting.clock.device.type == "cpu",
        batch_sampler=in_order,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=42,
    )


def step_ends(clock: Callable[[], float]) -> Any:
    """A callback of transformers' trainers; `times` are the ends of the steps."""
    from transformers import TrainerCallback

    class StepEnds(TrainerCallback):  # type: ignore[misc]
        def __init__(self) -> None:
            self.times: list[float] = []

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.times.append(clock())

    return StepEnds()


def quiet_peer() -> None:
    from datasets import disable_progress_bars
    from transformers.utils import logging

    logging.set_verbosity_error()
    disable_progress_bars()


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Gives a model its parameters back after a turn."""
    before = copy.deepcopy(model.state_dict())
    yield
    model.load_state_dict(before)
    model.zero_grad(set_to_none=True)


@contextmanager
def counted(module: nn.Module, padding: Padding, place: int) -> Iterator[None]:
    """Counts what a module is given, whose argument at `place` is the mask, or holds it, and what it computes of it."""

    def given(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        mask = inputs[place]
        padding.tokens = padding.tokens + (mask if isinstance(mask, Tensor) else mask["attention_mask"]).sum()

    def computed(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        padding.computed += inputs[0].numel()

    words = next(each for each in module.modules() if isinstance(each, nn.Embedding))
    handles = [module.register_forward_pre_hook(given), words.register_forward_pre_hook(computed)]
    yield
    for handle in handles:
        handle.remove()
