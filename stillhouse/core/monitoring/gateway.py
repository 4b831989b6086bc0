"""Pushes one group to a Pushgateway. A failed push only logs a line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from stillhouse.core.monitoring.table import Metric

JOB = "stillhouse"
SECONDS = 5.0
"""How long an unresponsive gateway may delay a step."""

Values = Mapping[str, Mapping[str, float] | float]
"""A metric's value, or its values by the values of its only label."""


def push(
    gateway: str,
    metrics: Iterable[Metric],
    values: Values,
    group: Mapping[str, str],
    log: Callable[[str], None],
    common: Mapping[str, str] | None = None,
    keep: bool = False,
) -> bool:
    """Replace the metrics of `group` at the gateway with `values`; return whether that worked.

    `common` are labels in addition to the group's. With `keep`, metrics of the group that are not in `values` stay.
    """
    from prometheus_client import CollectorRegistry, push_to_gateway, pushadd_to_gateway

    from stillhouse.core.monitoring.exporter import Instruments

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
        return False
    return True
