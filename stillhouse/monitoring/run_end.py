"""Pushes to Prometheus, from the last task of a run, how the run ended, as far as Kubeflow knows."""

from __future__ import annotations

import time
from collections.abc import Callable

from stillhouse.errors import InputError
from stillhouse.monitoring.settings import label, monitoring_settings


def report_run(succeeded: bool | None, log: Callable[[str], None]) -> bool:
    """Push how the run of this pod ended, if the environment names a gateway; return whether it was pushed.

    `succeeded` is None if unknown. Then only the time is pushed: it replaces the previous run's result at the gateway,
    so that an old failure does not trigger an alert and an old success does not silence one. As for steps, the run is
    not part of the group's name. Problems with metrics do not change the result of the run.
    """
    try:
        settings = monitoring_settings()
        if not settings.gateway:
            return False
        from stillhouse.monitoring.gateway import push
        from stillhouse.monitoring.table import RUNS

        values = {"stillhouse_run_finished_timestamp_seconds": time.time()}
        if succeeded is not None:
            values["stillhouse_run_success"] = float(succeeded)
        group = {"pipeline": label(settings.pipeline)}
        return push(settings.gateway, RUNS, values, group, log, {"run": label(settings.run)})
    except (InputError, ImportError) as error:
        log(f"how the run ended was not pushed: {error}")
        return False
