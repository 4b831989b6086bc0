"""Metrics for Prometheus. None contains the text of a query."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
TOKENS = tuple(2**power for power in range(3, 14))
KIND = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """The metrics of one service, in their own registry."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        labels = ["endpoint", "status"]
        self._requests = Counter("stillhouse_serve_requests", "Requests answered", labels, registry=registry)
        self._seconds = Histogram(
            "stillhouse_serve_request_seconds",
            "Seconds from the first byte of a request to the last of its answer",
            ["endpoint"],
            buckets=SECONDS,
            registry=registry,
        )
        self._tokens = Histogram(
            "stillhouse_serve_batch_tokens", "Tokens computed at once", buckets=TOKENS, registry=registry
        )
        self._texts = Counter("stillhouse_serve_texts", "Texts encoded", registry=registry)
        self._release = Gauge("stillhouse_serve_release", "1 for the release in use", ["release"], registry=registry)

    def answered(self, endpoint: str, status: int, seconds: float) -> None:
        self._requests.labels(endpoint, str(status)).inc()
        self._seconds.labels(endpoint).observe(seconds)

    def batch(self, texts: int, tokens: int) -> None:
        self._texts.inc(texts)
        self._tokens.observe(tokens)

    def gauge(self, name: str, text: str, read: Callable[[], float], of: str = "stillhouse_serve") -> None:
        """Adds a figure that is read on request."""
        Gauge(f"{of}_{name}", text, registry=self._registry).set_function(read)

    def text(self, release: str) -> bytes:
        """All metrics in Prometheus's format, with the name of the release in use."""
        self._release.clear()
        self._release.labels(release).set(1)
        return generate_latest(self._registry)
