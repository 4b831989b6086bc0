"""Watches a step or another task from its beginning to its end: serves live figures, and pushes how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

from stillhouse.context import rank
from stillhouse.errors import CrashElsewhere, InputError, ValidationFailed
from stillhouse.monitoring.monitor import SILENT, Monitor
from stillhouse.monitoring.settings import GATEWAY, PORT, MonitoringSettings, monitoring_settings

if TYPE_CHECKING:
    from stillhouse.monitoring.gateway import Values
    from stillhouse.report import Report


VERDICTS = {
    "passed": "stillhouse_validation_passed",
    "accepted": "stillhouse_promotion_accepted",
    "released": "stillhouse_promotion_released",
}
"""Facts of a report that are metrics of their own."""
ELSEWHERE = "elsewhere"
"""A failure in another process, which may have reported the reason; what it reported stays."""


@dataclass
class Watched:
    """A step or task under watch: where it reports its progress, and its report once it has one.

    `reported`: if it ends well, a step within has said so itself. `computed`: it was done, and not taken from where it
    was done before.
    """

    monitor: Monitor = SILENT
    report: Report | None = None
    common: dict[str, str] = field(default_factory=dict)
    reported: bool = False
    computed: bool = False


@contextmanager
def watch_step(step: str, log: Callable[[str], None]) -> Iterator[Watched]:
    """Watches the block as a run of `step`, where the environment asks for it; of several processes, the first.

    Raises `InputError`, before the block, when it asks for it in a way that is wrong or prometheus-client is absent.
    What goes wrong later with Prometheus itself is logged and does not touch the step.
    """
    settings = _asked()
    if not settings:
        yield Watched()
        return
    from stillhouse.monitoring.exporter import Exporter
    from stillhouse.monitoring.tally import Tally

    watched = Watched(common=settings.labels(step))
    tally, started = Tally(), time.monotonic()
    if settings.port:
        try:
            tally = Exporter(settings.port, watched.common, log)
        except OSError as error:
            log(f"no metrics are served on port {settings.port}: {error}")
    watched.monitor = tally
    failure = ""
    try:
        yield watched
    except BaseException as error:
        failure = reason(error)
        if isinstance(error, ValidationFailed):
            watched.report = error.report
        raise
    finally:
        if isinstance(tally, Exporter):
            tally.close()
        if settings.gateway:
            values = outcome(watched, time.monotonic() - started, failure)
            figures = {"stillhouse_step_figure": watched.report.metrics} if watched.report else {}
            throughput = {"stillhouse_step_examples_per_second": tally.throughput()}
            push_results(settings, watched, {**values, **figures, **throughput}, log)


@contextmanager
def watch_task(task: str, log: Callable[[str], None]) -> Iterator[Watched]:
    """Pushes how the block ended, a task without a step or around one, where the environment names a gateway.

    It serves nothing, and what a step within it has pushed under the same name stays beside that. Raises `InputError`
    as `watch_step` does.
    """
    settings = _asked()
    if not settings or not settings.gateway:
        yield Watched()
        return
    watched, started = Watched(common=settings.labels(task)), time.monotonic()
    failure = ""
    try:
        yield watched
    except BaseException as error:
        failure = ELSEWHERE if isinstance(error, CrashElsewhere) else reason(error)
        raise
    finally:
        if failure or not watched.reported:
            push_results(settings, watched, outcome(watched, time.monotonic() - started, failure), log, keep=True)


def _asked() -> MonitoringSettings | None:
    """What the environment asks of this process; None for nothing, and for all but the first of several processes."""
    settings = monitoring_settings()
    if not settings.asked_for or rank() > 0:
        return None
    if find_spec("prometheus_client") is None:
        asked = PORT if settings.port else GATEWAY
        raise InputError(f"{asked} asks for metrics, which need prometheus-client: pip install 'stillhouse[metrics]'")
    return settings


def outcome(watched: Watched, seconds: float, failure: str) -> Values:
    """How a step or task ended: well or, with `failure`, not; and the verdicts of its report."""
    from stillhouse.monitoring.table import REASONS

    values: dict[str, Mapping[str, float] | float] = {
        "stillhouse_step_success": float(not failure),
        "stillhouse_step_finished_timestamp_seconds": time.time(),
        "stillhouse_step_duration_seconds": seconds,
    }
    if failure != ELSEWHERE:
        values["stillhouse_step_failure"] = {name: float(name == failure) for name in REASONS}
    facts = watched.report.facts if watched.report else {}
    return values | {name: float(bool(facts[fact])) for fact, name in VERDICTS.items() if fact in facts}


def push_results(
    settings: MonitoringSettings, watched: Watched, values: Values, log: Callable[[str], None], *, keep: bool = False
) -> bool:
    """Pushes results as the group of a step or task, which has no run in its name."""
    from stillhouse.monitoring.gateway import push
    from stillhouse.monitoring.table import GROUPED_BY, RESULTS

    group = {name: watched.common[name] for name in GROUPED_BY}
    rest = {name: value for name, value in watched.common.items() if name not in group}
    return push(settings.gateway, RESULTS, values, group, log, rest, keep)


def reason(error: BaseException) -> str:
    """What a step failed for, as one of `REASONS`."""
    if isinstance(error, ValidationFailed):
        return "validation"
    if isinstance(error, InputError):
        return "bad_input"
    if isinstance(error, FloatingPointError):
        return "not_finite"
    # PyTorch's own error of this kind is known by its name, since a step need not have loaded PyTorch.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "out_of_memory"
    return "crash" if isinstance(error, Exception) else "interrupted"
