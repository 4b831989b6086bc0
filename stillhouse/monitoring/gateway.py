"""Pushing one group to a Pushgateway. A push that fails costs a line in the log and nothing more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from stillhouse.monitoring.table import Metric
from stillhouse.remote.address import redact
from stillhouse.remote.deadline import within

JOB = "stillhouse"
SECONDS = 5.0
"""How long a gateway that does not answer may hold a step up."""

Values = Mapping[str, Mapping[str, float] | float]
"""A metric's value, or its values by those of its one label."""


def push(
    gateway: str,
    metrics: Iterable[Metric],
    values: Values,
    group: Mapping[str, str],
    log: Callable[[str], None],
    common: Mapping[str, str] | None = None,
    keep: bool = False,
) -> bool:
    """Replaces what the gateway knows of `group` by `values`, and says whether that worked.

    `common` are labels beside the group's. With `keep`, metrics of the group that are not in `values` stay.
    """
    from prometheus_client import CollectorRegistry, push_to_gateway, pushadd_to_gateway

    from stillhouse.monitoring.instruments import Instruments

    registry = CollectorRegistry()
    instruments = Instruments([metric for metric in metrics if metric.name in values], common or {}, registry, log)
    for name, value in values.items():
        if isinstance(value, Mapping):
            for own, part in value.items():
                instruments.set(name, part, own)
        else:
            instruments.set(name, value)
    send = pushadd_to_gateway if keep else push_to_gateway
    try:
        # As a whole: the timeout of a connection is not one of the name server's.
        within(SECONDS, lambda: send(gateway, JOB, registry, grouping_key=dict(group), timeout=SECONDS))
    except Exception as error:  # whatever is wrong with the gateway, the step's own work is done
        shown = redact(gateway)
        # urllib quotes parts of an address, from which nobody can recognise a password: then the error's kind has to
        # do.
        reason = redact(str(error)) if shown == gateway else type(error).__name__
        log(f"metrics of {', '.join(group.values())} were not pushed to {shown}: {reason}")
        return False
    return True
