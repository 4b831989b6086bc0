"""Runs one use of a step in a separate process and reports its training speed and peak memory.

The figures depend on the machine, so they are returned and not stored in an artifact. Only training steps are timed:
loading, held-out measurements and the first step, in which libraries initialise, are left out.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.monitor import Monitor
from stillhouse.pipeline.graph import Use
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.spec import Paths, Report, Step


@dataclass(frozen=True)
class Timing:
    """The cost of a training. `steps` steps took `seconds`; memory is the process's peak, in MiB."""

    steps: int
    seconds: float
    passages_per_second: float
    peak_memory: float
    peak_gpu_memory: float
    device: str


class StepClock(Monitor):
    """Times training steps and passes every report on. From the end of a measurement to the next step, time counts."""

    def __init__(self, own: Monitor) -> None:
        self.own, self.steps, self.seconds, self.started = own, 0, 0.0, 0.0
        self.began, self.advanced, self.ended, self.curve = own.began, own.advanced, own.ended, own.curve  # type: ignore[method-assign]

    def trained(self, loss: float, gradient_norm: float, learning_rate: float, examples: int) -> None:
        now = time.perf_counter()
        if self.started:
            self.steps += 1
            self.seconds += now - self.started
        self.started = now
        self.own.trained(loss, gradient_norm, learning_rate, examples)

    def measured(self, heldout_loss: float, signals: Mapping[str, float]) -> None:
        self.own.measured(heldout_loss, signals)
        self.started = time.perf_counter()


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
            f"the process of {use.name} was killed, probably because memory ran out; lower {use.name}.batch_size"
        ) from None


def execute_timed(use: Use, config: Any, root: Path) -> Timing:
    """Executes a use in this process and times its training steps."""
    clocks: list[StepClock] = []

    def run(config: Any, inputs: Paths, outputs: Paths, context: Context) -> Report:
        clocks.append(StepClock(context.monitor))
        return use.step.run(config, inputs, outputs, dataclasses.replace(context, monitor=clocks[0]))

    step: Step = dataclasses.replace(use.step, run=run)
    execute(step, config, use.input_paths(root), use.output_paths(root))
    [clock] = clocks
    gpu, device = _gpu_memory()
    speed = clock.steps * config.batch_size / clock.seconds if clock.seconds else 0.0
    return Timing(clock.steps, clock.seconds, speed, peak_memory(), gpu, device)


def peak_memory() -> float:
    """The peak memory of this process, in MiB."""
    # getrusage would include the parent's memory, which a spawned process inherits as its maximum.
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) / 1024


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
