"""Metrics of the table as prometheus-client's instruments.

Live figures are on `/metrics` while a step runs. Others are pushed to a Pushgateway; a failed push only logs a line.
"""

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    disable_created_metrics,
    push_to_gateway,
    pushadd_to_gateway,
    start_http_server,
)

from stillhouse.core.monitoring.monitor import TRAINING, Tally
from stillhouse.core.monitoring.settings import label
from stillhouse.core.monitoring.table import COMMON, LIVE, Metric

JOB = "stillhouse"
SECONDS = 5.0
"""How long an unresponsive gateway may delay a step."""

Values = Mapping[str, Mapping[str, float] | float]
"""A metric's value, or its values by the values of its only label."""


class Instruments:
    """`instruments(name, *own label values)` is prometheus-client's counter or gauge. A metric with labels appears only
    once it is set, so that it never shows a false 0."""

    def __init__(self, metrics: Iterable[Metric], common: Mapping[str, str], registry: CollectorRegistry) -> None:
        disable_created_metrics()
        kinds: dict[str, Any] = {"counter": Counter, "gauge": Gauge}
        self._common = [label(value) for value in common.values()]
        self._made = {
            metric.name: kinds[metric.kind](metric.name, metric.help, (*common, *metric.labels), registry=registry)
            for metric in metrics
        }

    def __call__(self, name: str, *own: str) -> Any:
        values = [*self._common, *map(label, own)]
        return self._made[name].labels(*values) if values else self._made[name]

    def forget(self, name: str, *own: str) -> None:
        """Removes a metric's series with these label values."""
        with suppress(KeyError):
            self._made[name].remove(*self._common, *map(label, own))


class Exporter(Tally):
    """Serves `LIVE` on a port of all addresses until it is closed. Raises `OSError` if the port is in use."""

    def __init__(self, port: int, common: Mapping[str, str]) -> None:
        super().__init__()
        registry = CollectorRegistry()
        self._metric = Instruments(LIVE, {name: common[name] for name in COMMON}, registry)
        self._totals: dict[str, int | None] = {}
        self._done: defaultdict[str, int] = defaultdict(int)
        for kind in ("allocated", "reserved", "peak", "total"):  # read on every scrape
            self._metric("stillhouse_gpu_memory_bytes", kind).set_function(partial(gpu_memory, kind))
        self._server, self._thread = start_http_server(port, registry=registry)
        self.port = self._server.server_port

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def began(self, work: str, total: int | None, done: int) -> None:
        super().began(work, total, done)
        self._totals[work], self._done[work] = total, done
        self._got_on(work, 0)

    def advanced(self, work: str, units: int) -> None:
        super().advanced(work, units)
        if work != TRAINING:
            self._metric("stillhouse_examples_total", work).inc(units)
        self._got_on(work, units)

    def ended(self, work: str) -> None:
        super().ended(work)
        self._totals.pop(work, None)
        self._metric.forget("stillhouse_progress_ratio", work)
        if not self._totals:
            # No work is in progress that could stall.
            self._metric.forget("stillhouse_last_progress_timestamp_seconds")

    def trained(self, loss: float, gradient_norm: float, learning_rate: float, examples: int) -> None:
        super().trained(loss, gradient_norm, learning_rate, examples)
        self._metric("stillhouse_examples_total", TRAINING).inc(examples)
        self._metric("stillhouse_training_steps_total").inc()
        self._metric("stillhouse_training_loss").set(loss)
        self._metric("stillhouse_gradient_norm").set(gradient_norm)
        self._metric("stillhouse_learning_rate").set(learning_rate)

    def measured(self, heldout_loss: float, signals: Mapping[str, float]) -> None:
        self._metric("stillhouse_heldout_loss").set(heldout_loss)
        for name, value in signals.items():
            self._metric("stillhouse_signal", name).set(value)

    def _got_on(self, work: str, units: int) -> None:
        self._done[work] += units
        if total := self._totals.get(work):
            self._metric("stillhouse_progress_ratio", work).set(self._done[work] / total)
        self._metric("stillhouse_last_progress_timestamp_seconds").set(time.time())


def gpu_memory(kind: str) -> float:
    """GPU memory that this process uses, in bytes; 0 without a GPU. Never initialises PyTorch or the GPU itself."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return 0.0
    if kind == "total":
        return float(torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory)
    if kind == "peak":
        return float(torch.cuda.max_memory_allocated())
    return float(torch.cuda.memory_allocated() if kind == "allocated" else torch.cuda.memory_reserved())


def push(
    gateway: str,
    metrics: Iterable[Metric],
    values: Values,
    group: Mapping[str, str],
    log: Callable[[str], None],
    common: Mapping[str, str] | None = None,
    keep: bool = False,
) -> None:
    """Replace the metrics of `group` at the gateway with `values`.

    `common` are labels in addition to the group's. With `keep`, metrics of the group that are not in `values` stay.
    """
    registry = CollectorRegistry()
    instruments = Instruments([metric for metric in metrics if metric.name in values], common or {}, registry)
    for name, value in values.items():
        if isinstance(value, Mapping):
            for own, part in value.items():
                instruments(name, own).set(part)
        else:
            instruments(name).set(value)
    send = pushadd_to_gateway if keep else push_to_gateway
    try:
        send(gateway, JOB, registry, grouping_key=dict(group), timeout=SECONDS)
    except Exception as error:  # a problem with the gateway must not fail the step
        log(f"metrics of {', '.join(group.values())} were not pushed to {gateway}: {error}")
