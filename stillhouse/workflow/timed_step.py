"""Runs one use of a step in a process of its own and says how fast it trained and how much memory it took.

The figures depend on the machine, so they are handed back and stand in no artifact. Time is that of training steps
alone: loading, held-out measurements and the first step, in which libraries set themselves up, are left out.
"""

from __future__ import annotations

import dataclasses
import resource
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from stillhouse.context import Context
from stillhouse.errors import InputError
from stillhouse.steps.execute import execute
from stillhouse.steps.spec import Paths, Report, Step
from stillhouse.workflow.graph import Use


@dataclass(frozen=True)
class Timing:
    """What a training took. `steps` were timed and took `seconds`; memory is the process's peak, in MiB."""

    steps: int
    seconds: float
    passages_per_second: float
    peak_memory: float
    peak_gpu_memory: float
    device: str


class StepClock:
    """A progress bar that times training steps. What happens between a measurement's end and the next step counts."""

    def __init__(self, bar: Any) -> None:
        self.bar, self.steps, self.seconds, self.started = bar, 0, 0.0, 0.0

    def __enter__(self) -> StepClock:
        self.bar.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.bar.__exit__(*error)

    def update(self, count: int = 1) -> None:
        now = time.perf_counter()
        if self.started:
            self.steps += count
            self.seconds += now - self.started
        self.started = now
        self.bar.update(count)

    def set_postfix(self, **values: Any) -> None:
        """Called after a held-out measurement, whose time is not the training's."""
        self.started = time.perf_counter()
        self.bar.set_postfix(**values)


@dataclass(frozen=True)
class TimedContext(Context):
    """A context that keeps the clocks of the training bars it made."""

    clocks: list[StepClock] = dataclasses.field(default_factory=list)

    def bar(self, what: str, total: int | None, unit: str = "it", done: int = 0) -> Any:
        clock = StepClock(super().bar(what, total, unit, done))
        if unit == "step":
            self.clocks.append(clock)
        return clock


def run_timed(use: Use, config: Any, root: Path) -> Timing:
    """Executes a use below `root` in a process of its own, so that its peak memory is its own too.

    Raises what the step raises; `MemoryError` when the system ended the process.
    """
    try:
        # Not a fork: a fork would begin with the memory of this process.
        with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
            return pool.submit(execute_timed, use, config, root).result()
    except BrokenProcessPool:
        raise MemoryError(
            f"the process of {use.name} was ended from outside, as systems do when memory runs out; "
            f"lower {use.name}.batch_size"
        ) from None


def execute_timed(use: Use, config: Any, root: Path) -> Timing:
    """Executes a use in this process, with a clock on its training steps."""
    clocks: list[StepClock] = []

    def run(config: Any, inputs: Paths, outputs: Paths, context: Context) -> Report:
        return use.step.run(config, inputs, outputs, TimedContext(**vars(context), clocks=clocks))

    step: Step = dataclasses.replace(use.step, run=run)
    execute(step, config, use.input_paths(root), use.output_paths(root))
    steps, seconds = sum(clock.steps for clock in clocks), sum(clock.seconds for clock in clocks)
    gpu, device = _gpu_memory()
    speed = steps * config.batch_size / seconds if seconds else 0.0
    return Timing(steps, seconds, speed, peak_memory(), gpu, device)


def peak_memory() -> float:
    """The most memory that this process held at once, in MiB."""
    status = Path("/proc/self/status")
    if status.is_file():
        # getrusage would count the parent's memory too, which a spawned process inherits as its maximum.
        fields: Mapping[str, str] = dict(
            line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines() if ":" in line
        )
        return int(fields["VmHWM"].split()[0]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def _gpu_memory() -> tuple[float, str]:
    """The most GPU memory that was allocated, in MiB, and what computed."""
    import torch

    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated() / 2**20, torch.cuda.get_device_name()
    return 0.0, f"CPU, {torch.get_num_threads()} threads"


def reason(error: BaseException) -> str:
    """An error in one line, for the table."""
    text = " ".join(str(error).split())
    return (
        text if isinstance(error, InputError) else f"{type(error).__name__}: {text}" if text else type(error).__name__
    )
