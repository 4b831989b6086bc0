"""Reports a schedule to Prometheus: when the watcher last looked for a new corpus, and what it found."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from stillhouse.errors import InputError
from stillhouse.monitoring.settings import label, monitoring_settings

WATCH_SECONDS = "STILLHOUSE_WATCH_SECONDS"


def watch_interval() -> float:
    """The watcher's interval in seconds, from its pod's environment; one hour by default."""
    text = os.environ.get(WATCH_SECONDS) or "3600"
    if not text.isdecimal() or int(text) == 0:
        raise InputError(f"{WATCH_SECONDS} is {text!r}; give whole seconds, for example {WATCH_SECONDS}=3600")
    return float(text)


def report_schedule(
    schedule: str, interval_seconds: float, fresh: bool, in_flight: bool, log: Callable[[str], None]
) -> bool:
    """Push that `schedule` has just checked, if the environment names a gateway; return whether it was pushed.

    `fresh`: the release matches the current corpus. While it does not, the time when it last did stays unchanged.
    `in_flight`: a run for the change is in flight.
    """
    settings = monitoring_settings()
    if not settings.gateway:
        return False
    try:
        from stillhouse.monitoring.gateway import push
        from stillhouse.monitoring.table import SCHEDULES

        now = time.time()
        values = {
            "stillhouse_schedule_interval_seconds": interval_seconds,
            "stillhouse_schedule_checked_timestamp_seconds": now,
            "stillhouse_schedule_in_flight": float(in_flight),
        }
        if fresh:
            values["stillhouse_schedule_fresh_timestamp_seconds"] = now
        return push(settings.gateway, SCHEDULES, values, {"schedule": label(schedule)}, log, keep=True)
    except ImportError:
        raise InputError("metrics need prometheus-client: pip install 'stillhouse[metrics]'") from None
