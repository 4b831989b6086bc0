"""Watches a step or another task from start to end: serves live figures, and pushes how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stillhouse.core.context import rank
from stillhouse.core.errors import CrashElsewhere, InputError, ValidationFailed
from stillhouse.core.monitoring.monitor import SILENT, Monitor, Tally
from stillhouse.core.monitoring.settings import monitoring_settings
from stillhouse.core.monitoring.table import GROUPED_BY, REASONS, RESULTS
from stillhouse.core.report import Report

if TYPE_CHECKING:
    from stillhouse.core.monitoring.exporter import Values

VERDICTS = {
    "passed": "stillhouse_validation_passed",
    "accepted": "stillhouse_promotion_accepted",
    "released": "stillhouse_promotion_released",
}
"""Facts of a report that have their own metrics."""
ELSEWHERE = "elsewhere"
"""A failure in another process, which may have reported the reason; its report stays."""


@dataclass
class Watched:
    """A watched step or task: the monitor for its progress, and its report once it has one.

    `reported`: a step within it reports success itself.
    """

    monitor: Monitor = SILENT
    report: Report | None = None
    common: dict[str, str] = field(default_factory=dict)
    reported: bool = False


@contextmanager
def watch(name: str, log: Callable[[str], None], *, task: bool = False) -> Iterator[Watched]:
    """Watch the block as a run of the step `name`, if the environment asks for it; only in the first of several
    processes.

    A `task` is without a step or around one: it serves nothing, and keeps the metrics that a step within it pushed
    under the same name. Raises `InputError` before the block if the environment's settings are invalid. Later problems
    with Prometheus are logged and do not affect the block.
    """
    settings = monitoring_settings()
    if not (settings.gateway or (settings.port and not task)) or rank() > 0:
        yield Watched()
        return
    from stillhouse.core.monitoring.exporter import Exporter, push

    watched = Watched(common=settings.labels(name))
    tally, started = Tally(), time.monotonic()
    if settings.port and not task:
        try:
            tally = Exporter(settings.port, watched.common)
        except OSError as error:
            log(f"cannot serve metrics on port {settings.port}: {error}")
    watched.monitor = tally
    failure = ""
    try:
        yield watched
    except BaseException as error:
        failure = ELSEWHERE if task and isinstance(error, CrashElsewhere) else reason(error)
        if isinstance(error, ValidationFailed):
            watched.report = error.report
        raise
    finally:
        if isinstance(tally, Exporter):
            tally.close()
        if settings.gateway and (failure or not watched.reported):
            values = outcome(watched, time.monotonic() - started, failure)
            if not task:
                figures = watched.report.metrics if watched.report else {}
                throughput = {"stillhouse_step_examples_per_second": tally.throughput()}
                values = {**values, "stillhouse_step_figure": figures, **throughput}
            # The run is not part of the group's name.
            group = {name: watched.common[name] for name in GROUPED_BY}
            rest = {name: value for name, value in watched.common.items() if name not in group}
            push(settings.gateway, RESULTS, values, group, log, rest, task)


def outcome(watched: Watched, seconds: float, failure: str) -> Values:
    """How a step or task ended (`failure` is "" for success), and the verdicts of its report."""
    values: dict[str, Mapping[str, float] | float] = {
        "stillhouse_step_success": float(not failure),
        "stillhouse_step_finished_timestamp_seconds": time.time(),
        "stillhouse_step_duration_seconds": seconds,
    }
    if failure != ELSEWHERE:
        values["stillhouse_step_failure"] = {name: float(name == failure) for name in REASONS}
    facts = watched.report.facts if watched.report else {}
    return values | {name: float(bool(facts[fact])) for fact, name in VERDICTS.items() if fact in facts}


def reason(error: BaseException) -> str:
    """Why a step failed, as one of `REASONS`."""
    if isinstance(error, ValidationFailed):
        return "validation"
    if isinstance(error, FloatingPointError):  # before bad input, which NotFinite is too
        return "not_finite"
    if isinstance(error, InputError):
        return "bad_input"
    # Recognise PyTorch's own error by its name, because a step may not have loaded PyTorch.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "out_of_memory"
    return "crash" if isinstance(error, Exception) else "interrupted"
