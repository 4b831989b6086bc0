"""Metrics for Prometheus, as `stillhouse.core.monitoring.table` describes them. None contains the text of a query."""

from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from stillhouse.core.monitoring.table import SERVICES

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TOKENS = tuple(2**power for power in range(3, 14))
KIND = "text/plain; version=0.0.4; charset=utf-8"
TABLE = {metric.name: metric for metric in SERVICES}


class Metrics:
    """The metrics of one service, in their own registry."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = self._make(Counter, "requests_total")
        self._seconds = self._make(Histogram, "request_seconds", buckets=SECONDS)
        self._tokens = self._make(Histogram, "batch_tokens", buckets=TOKENS)
        self._texts = self._make(Counter, "texts_total")
        self._release = self._make(Gauge, "release")

    def _make(self, kind: Callable[..., Any], name: str, **more: Any) -> Any:
        metric = TABLE[f"stillhouse_serve_{name}"]
        return kind(metric.name, metric.help, metric.labels, registry=self._registry, **more)

    def answered(self, endpoint: str, status: int, seconds: float) -> None:
        self._requests.labels(endpoint, str(status)).inc()
        self._seconds.labels(endpoint).observe(seconds)

    def batch(self, texts: int, tokens: int) -> None:
        self._texts.inc(texts)
        self._tokens.observe(tokens)

    def gauge(self, name: str, read: Callable[[], float]) -> None:
        """Adds a figure that is read on request."""
        self._make(Gauge, name).set_function(read)

    def text(self, release: str) -> bytes:
        """All metrics in Prometheus's format, with the name of the release in use."""
        self._release.clear()
        self._release.labels(release).set(1)
        return generate_latest(self._registry)
