"""What the watcher reports to Prometheus of a schedule: when it looked for a new corpus, and what it found."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from stillhouse.errors import InputError
from stillhouse.monitoring.settings import label, monitoring_settings

WATCH_SECONDS = "STILLHOUSE_WATCH_SECONDS"


def watch_interval() -> float:
    """How often the watcher is run, in seconds, as its pod says: an hour where it does not."""
    text = os.environ.get(WATCH_SECONDS) or "3600"
    if not text.isdecimal() or int(text) == 0:
        raise InputError(f"{WATCH_SECONDS} is {text!r}; give whole seconds, as in {WATCH_SECONDS}=3600")
    return float(text)


def report_schedule(
    schedule: str, interval_seconds: float, fresh: bool, in_flight: bool, log: Callable[[str], None]
) -> bool:
    """Pushes that `schedule` looked just now, where the environment names a gateway; says whether it did.

    `fresh`: the release is of the current corpus. While it is not, the time when it last was stays unchanged, and
    grows old. `in_flight`: a run is at work on it.
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
