"""Watches one step from its beginning to its end: serves its live figures and pushes its results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

from stillhouse.context import rank
from stillhouse.errors import InputError, ValidationFailed
from stillhouse.monitoring.monitor import SILENT, Monitor
from stillhouse.monitoring.settings import GATEWAY, PORT, MonitoringSettings, monitoring_settings

if TYPE_CHECKING:
    from stillhouse.monitoring.gateway import Values
    from stillhouse.monitoring.tally import Tally
    from stillhouse.steps.spec import Report


@dataclass
class Watched:
    """A step under watch: what it tells its progress to, and its report once it has one."""

    monitor: Monitor = SILENT
    report: Report | None = None
    common: dict[str, str] = field(default_factory=dict)


@contextmanager
def watch_step(step: str, log: Callable[[str], None]) -> Iterator[Watched]:
    """Watches the block as a run of `step`, where the environment asks for it; of several processes, the first.

    Raises `InputError`, before the block, when it asks for it in a way that is wrong or prometheus-client is absent.
    What goes wrong later with Prometheus itself is logged and does not touch the step.
    """
    settings = monitoring_settings()
    if not settings.asked_for or rank() > 0:
        yield Watched()
        return
    if find_spec("prometheus_client") is None:
        asked = PORT if settings.port else GATEWAY
        raise InputError(f"{asked} asks for metrics, which need prometheus-client: pip install 'stillhouse[metrics]'")
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
            push_results(settings, watched, tally, time.monotonic() - started, failure, log)


def push_results(
    settings: MonitoringSettings,
    watched: Watched,
    tally: Tally,
    seconds: float,
    failure: str,
    log: Callable[[str], None],
) -> bool:
    """Pushes the results of a step that ended, well or, with `failure`, not. The group has no run in its name."""
    from stillhouse.monitoring.gateway import push
    from stillhouse.monitoring.table import GROUPED_BY, REASONS, RESULTS

    values: Values = {
        "stillhouse_step_success": float(not failure),
        "stillhouse_step_failure": {name: float(name == failure) for name in REASONS},
        "stillhouse_step_finished_timestamp_seconds": time.time(),
        "stillhouse_step_duration_seconds": seconds,
        "stillhouse_step_examples_per_second": tally.throughput(),
    }
    if watched.report is not None:
        verdicts = {"passed": "stillhouse_validation_passed", "accepted": "stillhouse_promotion_accepted"}
        said = {name: watched.report.facts[fact] for fact, name in verdicts.items() if fact in watched.report.facts}
        figures = {"stillhouse_step_figure": watched.report.metrics}
        values = {**values, **figures, **{name: float(bool(value)) for name, value in said.items()}}
    group = {name: watched.common[name] for name in GROUPED_BY}
    rest = {name: value for name, value in watched.common.items() if name not in group}
    return push(settings.gateway, RESULTS, values, group, log, rest)


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
