"""prometheus-client's instruments for some metrics of the table, with their labels filled in and kept few."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics

from stillhouse.monitoring.settings import label
from stillhouse.monitoring.table import LABEL_VALUES, Metric


class Instruments:
    """Sets metrics by name. Those without labels of their own appear when first set, so that none shows a false 0.

    A metric takes a bounded number of values of its own labels; the first one left out is reported to `log`.
    """

    def __init__(
        self,
        metrics: Iterable[Metric],
        common: Mapping[str, str],
        registry: CollectorRegistry,
        log: Callable[[str], None],
    ) -> None:
        disable_created_metrics()
        kinds: dict[str, Any] = {"counter": Counter, "gauge": Gauge}
        self.common = [label(value) for value in common.values()]
        self.log = log
        metrics = tuple(metrics)
        self.children: dict[str, dict[tuple[str, ...], Any]] = {metric.name: {} for metric in metrics}
        self.reported: set[str] = set()
        self.made = {
            metric.name: kinds[metric.kind](
                metric.name, metric.help, labelnames=(*common, *metric.labels), registry=registry
            )
            for metric in metrics
        }

    def set(self, name: str, value: float, *own: str) -> None:
        child = self._child(name, own)
        if child is not None:
            child.set(value)

    def add(self, name: str, amount: float, *own: str) -> None:
        child = self._child(name, own)
        if child is not None:
            child.inc(amount)

    def read(self, name: str, function: Callable[[], float], *own: str) -> None:
        """Asks `function` for the value whenever Prometheus asks for it."""
        self._child(name, own).set_function(function)

    def forget(self, name: str, *own: str) -> None:
        """Takes back a metric of these label values; it counts no more among them."""
        if self.children[name].pop(own, None) is not None:
            self.made[name].remove(*self.common, *map(label, own))

    def _child(self, name: str, own: tuple[str, ...]) -> Any:
        """The instrument of these label values; None where there are too many."""
        children = self.children[name]
        if own not in children:
            if len(children) < LABEL_VALUES:
                values = [*self.common, *map(label, own)]
                children[own] = self.made[name].labels(*values) if values else self.made[name]
            elif name not in self.reported:
                self.reported.add(name)
                self.log(
                    f"{name} has {LABEL_VALUES} values of its labels; {', '.join(own)} and later ones are left out"
                )
        return children.get(own)
