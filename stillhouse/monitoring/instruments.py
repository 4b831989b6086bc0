"""prometheus-client's instruments for metrics of the table, with common labels set and label values limited."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, disable_created_metrics

from stillhouse.monitoring.settings import label
from stillhouse.monitoring.table import LABEL_VALUES, Metric


class Instruments:
    """Sets metrics by name. A metric appears only once it is set, so that it never shows a false 0.

    The number of values of a metric's own labels is limited; the first one left out is reported to `log`.
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
        """Get the value from `function` on every scrape."""
        self._child(name, own).set_function(function)

    def forget(self, name: str, *own: str) -> None:
        """Remove a metric's series with these label values; it no longer counts towards the limit."""
        if self.children[name].pop(own, None) is not None:
            self.made[name].remove(*self.common, *map(label, own))

    def _child(self, name: str, own: tuple[str, ...]) -> Any:
        """The instrument for these label values, or None if there are too many."""
        children = self.children[name]
        if own not in children:
            if len(children) < LABEL_VALUES:
                values = [*self.common, *map(label, own)]
                children[own] = self.made[name].labels(*values) if values else self.made[name]
            elif name not in self.reported:
                self.reported.add(name)
                self.log(
                    f"{name} has reached {LABEL_VALUES} label values; {', '.join(own)} and later ones are left out"
                )
        return children.get(own)
