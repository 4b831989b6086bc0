"""What the last task of a run pushes for Prometheus: how the run ended, as far as Kubeflow says it."""

from __future__ import annotations

import time
from collections.abc import Callable

from stillhouse.errors import InputError
from stillhouse.monitoring.settings import label, monitoring_settings


def report_run(succeeded: bool | None, log: Callable[[str], None]) -> bool:
    """Pushes how the run of this pod ended, where the environment names a gateway; says whether it was pushed.

    `succeeded` is None where that is unknown. Then only the moment is pushed: it replaces what the gateway had of the
    run before, so that no alert goes by an old failure, nor is one silenced by an old success. The group has no run
    in its name, as those of steps. Nothing that is wrong with metrics touches the run's own end.
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
