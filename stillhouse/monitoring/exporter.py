"""Live figures on `/metrics` while a step runs."""

from __future__ import annotations

import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server

from stillhouse.monitoring.instruments import Instruments
from stillhouse.monitoring.monitor import TRAINING
from stillhouse.monitoring.table import COMMON, LIVE
from stillhouse.monitoring.tally import Tally

MEMORY_KINDS = ("allocated", "reserved", "peak", "total")


class Exporter(Tally):
    """Serves `LIVE` on a port of all addresses until it is closed."""

    def __init__(self, port: int, common: Mapping[str, str], log: Callable[[str], None]) -> None:
        """Raises `OSError` if the port is in use."""
        super().__init__()
        registry = CollectorRegistry()
        self.instruments = Instruments(LIVE, {name: common[name] for name in COMMON}, registry, log)
        self.totals: dict[str, int | None] = {}
        self.done: defaultdict[str, int] = defaultdict(int)
        self._watch_memory()
        self.server, self.thread = start_http_server(port, registry=registry)
        self.port = self.server.server_port

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def began(self, work: str, total: int | None, done: int) -> None:
        super().began(work, total, done)
        self.totals[work], self.done[work] = total, done
        self._got_on(work, 0)

    def advanced(self, work: str, units: int) -> None:
        super().advanced(work, units)
        if work != TRAINING:
            self.instruments.add("stillhouse_examples_total", units, work)
        self._got_on(work, units)

    def ended(self, work: str) -> None:
        super().ended(work)
        self.totals.pop(work, None)
        self.instruments.forget("stillhouse_progress_ratio", work)
        if not self.totals:
            # No work is in progress that could stall.
            self.instruments.forget("stillhouse_last_progress_timestamp_seconds")

    def trained(self, loss: float, gradient_norm: float, learning_rate: float, examples: int) -> None:
        super().trained(loss, gradient_norm, learning_rate, examples)
        self.instruments.add("stillhouse_examples_total", examples, TRAINING)
        self.instruments.add("stillhouse_training_steps_total", 1)
        self.instruments.set("stillhouse_training_loss", loss)
        self.instruments.set("stillhouse_gradient_norm", gradient_norm)
        self.instruments.set("stillhouse_learning_rate", learning_rate)

    def measured(self, heldout_loss: float, signals: Mapping[str, float]) -> None:
        self.instruments.set("stillhouse_heldout_loss", heldout_loss)
        for name, value in signals.items():
            self.instruments.set("stillhouse_signal", value, name)

    def _got_on(self, work: str, units: int) -> None:
        self.done[work] += units
        total = self.totals.get(work)
        if total:
            self.instruments.set("stillhouse_progress_ratio", self.done[work] / total, work)
        self.instruments.set("stillhouse_last_progress_timestamp_seconds", time.time())

    def _watch_memory(self) -> None:
        """Read the GPU's memory on every scrape; it is 0 until the step uses the GPU."""
        for kind in MEMORY_KINDS:
            self.instruments.read("stillhouse_gpu_memory_bytes", partial(gpu_memory, kind), kind)


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
