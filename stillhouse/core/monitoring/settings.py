"""Whether a step reports to Prometheus, and with which labels, from the environment (on a cluster, its pod's).

| variable | meaning |
|---|---|
| `STILLHOUSE_METRICS_PORT` | serve live figures on this port, at `/metrics` |
| `STILLHOUSE_PUSHGATEWAY` | push results there: `http://host:port` |
| `STILLHOUSE_PIPELINE`, `STILLHOUSE_TASK`, `STILLHOUSE_RUN` | the labels `pipeline`, `step` and `run` |
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from stillhouse.core.errors import InputError
from stillhouse.core.remote.address import has_host, redact

PORT = "STILLHOUSE_METRICS_PORT"
GATEWAY = "STILLHOUSE_PUSHGATEWAY"
PIPELINE = "STILLHOUSE_PIPELINE"
TASK = "STILLHOUSE_TASK"
RUN = "STILLHOUSE_RUN"
LONGEST_LABEL = 63
"""Kubernetes' limit for labels, so that a pod's labels and the labels of its metrics are equal."""


@dataclass(frozen=True)
class MonitoringSettings:
    """With port 0 nothing is served; without a gateway nothing is pushed."""

    port: int = 0
    gateway: str = ""
    pipeline: str = "none"
    task: str = ""
    run: str = "none"

    def __post_init__(self) -> None:
        shown = redact(self.gateway)
        if self.gateway and not has_host(self.gateway):
            raise InputError(f"{GATEWAY} is {shown!r}; give an address, for example {GATEWAY}=http://pushgateway:9091")
        if shown != self.gateway:  # pushing would fail too: urllib reads the text before an @ as part of the host
            raise InputError(
                f"{GATEWAY} is {shown!r}; its password or token would be visible in logs and compiled pipelines; give "
                f"an address without one, for example {GATEWAY}=http://pushgateway:9091"
            )

    def labels(self, step: str) -> dict[str, str]:
        """The common labels of a step's metrics."""
        return {"pipeline": label(self.pipeline), "step": label(self.task or step), "run": label(self.run)}


def monitoring_settings(environment: Mapping[str, str] = os.environ) -> MonitoringSettings:
    """The settings from the environment. Raises `InputError` for an invalid port or address."""
    port = environment.get(PORT) or "0"
    if not port.isdecimal() or int(port) > 65535:
        raise InputError(f"{PORT} is {port!r}; give a port from 1 to 65535, for example {PORT}=9464")
    return MonitoringSettings(
        port=int(port),
        gateway=environment.get(GATEWAY, ""),
        pipeline=environment.get(PIPELINE) or "none",
        task=environment.get(TASK, ""),
        run=environment.get(RUN) or "none",
    )


def label(text: str) -> str:
    """A valid label value: letters, digits and `._@-`, no longer than Kubernetes allows."""
    return re.sub(r"[^A-Za-z0-9._@-]+", "_", text)[:LONGEST_LABEL] or "none"
