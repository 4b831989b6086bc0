"""Runs one use of a step in a separate process and reports its training speed and peak memory.

The figures depend on the machine, so they are returned and not stored in an artifact. Only training steps are timed:
loading, held-out measurements and the first step, in which libraries initialise, are left out.
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
    """The cost of a training. `steps` steps took `seconds`; memory is the process's peak, in MiB."""

    steps: int
    seconds: float
    passages_per_second: float
    peak_memory: float
    peak_gpu_memory: float
    device: str


class StepClock:
    """A progress bar that times training steps. The time from the end of a measurement to the next step counts."""

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
        """Is called after a held-out measurement, whose time does not count."""
        self.started = time.perf_counter()
        self.bar.set_postfix(**values)


@dataclass(frozen=True)
class TimedContext(Context):
    """A context that keeps the clocks of the training bars that it made."""

    clocks: list[StepClock] = dataclasses.field(default_factory=list)

    def bar(self, what: str, total: int | None, unit: str = "it", done: int = 0) -> Any:
        clock = StepClock(super().bar(what, total, unit, done))
        if unit == "step":
            self.clocks.append(clock)
        return clock


def run_timed(use: Use, config: Any, root: Path) -> Timing:
    """Executes a use below `root` in a separate process, to measure its own peak memory.

    Raises what the step raises, and `MemoryError` if the system killed the process.
    """
    try:
        # Not a fork, which would start with the memory of this process.
        with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
            return pool.submit(execute_timed, use, config, root).result()
    except BrokenProcessPool:
        raise MemoryError(
            f"the process of {use.name} was killed from outside, as happens when memory runs out; "
            f"lower {use.name}.batch_size"
        ) from None


def execute_timed(use: Use, config: Any, root: Path) -> Timing:
    """Executes a use in this process and times its training steps."""
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
    """The peak memory of this process, in MiB."""
    status = Path("/proc/self/status")
    if status.is_file():
        # getrusage would include the parent's memory, which a spawned process inherits as its maximum.
        fields: Mapping[str, str] = dict(
            line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines() if ":" in line
        )
        return int(fields["VmHWM"].split()[0]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 * 1024 if sys.platform == "darwin" else 1024)


def _gpu_memory() -> tuple[float, str]:
    """The peak allocated GPU memory, in MiB, and the name of the device."""
    import torch

    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated() / 2**20, torch.cuda.get_device_name()
    return 0.0, f"CPU, {torch.get_num_threads()} threads"


def reason(error: BaseException) -> str:
    """An error as one line, for the table."""
    text = " ".join(str(error).split())
    return (
        text if isinstance(error, InputError) else f"{type(error).__name__}: {text}" if text else type(error).__name__
    )
