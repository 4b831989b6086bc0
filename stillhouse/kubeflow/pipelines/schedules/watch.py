"""One check by the watcher: has a corpus changed since the current release, without a run for it yet?

After it, Prometheus learns when the watcher last looked, and what it found.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from stillhouse.core.artifacts import digest_json
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.settings import label, monitoring_settings
from stillhouse.core.remote.dvc_source import Found, look_up
from stillhouse.kubeflow.pipelines.schedules.cluster import FAILED, Kubeflow, in_flight
from stillhouse.kubeflow.pipelines.schedules.file import Watch
from stillhouse.releases.refresh.workspace import open_clone
from stillhouse.releases.tags import Release, read_history, refused_beside

WATCH_SECONDS = "STILLHOUSE_WATCH_SECONDS"
NAMED = r"[0-9a-f]{12}-[0-9a-f]{8}(-\d+)?"
"""What follows a watch's name in the names of its runs: digests of the change and of the settings, and the attempt."""


@dataclass(frozen=True)
class Seen:
    """The result of a check: `unchanged`, `known` (there is already a run for it), or `started`.

    `fresh`: the release was made from the current corpus. `in_flight`: a run is working on it.
    """

    watch: str
    kind: str
    why: str
    run: str = ""
    fresh: bool = False
    in_flight: bool = False

    def __str__(self) -> str:
        return f"{self.watch}: {self.kind}, {self.why}"


def look(watch: Watch, cluster: Kubeflow, *, again: bool = False) -> Seen:
    """Compares DVC's digest of the watched path with that of the champion's corpus, and starts the pipeline.

    The run's name is derived from both digests, the pipeline's version and its parameters. So only one of two checks
    starts a run, and changed settings start a new one. While a run of the watch is in flight, no other starts, whatever
    has changed since, the corpus or the champion: both would release to one branch, and only one can win. A failed run
    is started again until the watch's `attempts` are used up. Any other ended run is only repeated with `again`: its
    log says why it failed, or its challenger was refused. Raises `InputError` for repositories that cannot be read.
    """
    version = cluster.version_of(watch.pipeline, watch.version)
    found = look_up(watch.repo, watch.revision, watch.path)
    champion, released, refused = in_use(watch)
    if champion and content_of(found) == _content(champion):
        return Seen(watch.name, "unchanged", f"{watch.path} is the same as in {champion.name}", fresh=True)
    key = digest_json([watch.name, content_of(found), champion.tag if champion else ""])[:12]
    rules = digest_json(
        [watch.pipeline, version.display_name, watch.branch, watch.service_account, dict(watch.parameters)]
    )[:8]
    name = f"{watch.name}-{key}-{rules}"
    own = [run for run in cluster.runs() if re.fullmatch(rf"{re.escape(watch.name)}-{NAMED}", run.display_name)]
    for run in own:
        if in_flight(run):
            state = run.state or "PENDING"
            return Seen(watch.name, "known", f"run {run.display_name} is {state}", run.run_id, in_flight=True)
    for_change = [run for run in own if run.display_name.startswith(f"{watch.name}-{key}-")]
    attempts = [run for run in for_change if run.display_name.startswith(name)]
    failed = all(run.state == FAILED for run in attempts)
    if attempts and not again and not (failed and len(attempts) < watch.attempts):
        why = f"run {name} {attempts[0].state}; --again starts another"
        # A success without a release or a refusal means the release's own passages under another digest.
        succeeded = any(run.state == "SUCCEEDED" for run in for_change)
        fresh = succeeded and not refused and content_of(found) not in released
        return Seen(watch.name, "known", why, attempts[0].run_id, fresh=fresh and champion is not None)
    if attempts:
        name = f"{name}-{len(attempts) + 1}"
    parameters = watch.run_parameters(found.commit, again=again)
    run_id = cluster.start(watch.pipeline, version.display_name, name, parameters, watch.service_account)
    why = f"{watch.path} has changed at {found.commit[:12]}: run {name}"
    return Seen(watch.name, "started", why, run_id, in_flight=True)


def in_use(watch: Watch) -> tuple[Release | None, frozenset[str], bool]:
    """The release in use, the contents of all released corpora, and whether a challenger of that release was refused.

    Read from a clone of the repository without its data.
    """
    with TemporaryDirectory() as place:
        git = open_clone(watch.releases, watch.branch, Path(place) / "releases")
        history = read_history(git)
        released = frozenset(_content(release) for release in history.releases)
        refused = bool(history.champion and refused_beside(git, history.champion))
        return history.champion, released, refused


def content_of(found: Found) -> str:
    """The identity of a path's state: DVC's digest, or the commit if git itself tracks it."""
    return found.digest or found.commit


def _content(release: Release) -> str:
    """The same for the corpus that a release was made from."""
    source = release.record.get("source", {})
    return source.get("digest") or source.get("commit", "")


def watch_interval() -> float:
    """The watcher's interval in seconds, from its pod's environment; one hour by default."""
    text = os.environ.get(WATCH_SECONDS) or "3600"
    if not text.isdecimal() or int(text) == 0:
        raise InputError(f"{WATCH_SECONDS} is {text!r}; give whole seconds, for example {WATCH_SECONDS}=3600")
    return float(text)


def report_schedule(
    schedule: str, interval_seconds: float, fresh: bool, in_flight: bool, log: Callable[[str], None]
) -> None:
    """Push that `schedule` has just checked, if the environment names a gateway.

    `fresh`: the release matches the current corpus. While it does not, the time when it last did stays unchanged.
    `in_flight`: a run for the change is in flight.
    """
    settings = monitoring_settings()
    if not settings.gateway:
        return
    from stillhouse.core.monitoring.exporter import push
    from stillhouse.core.monitoring.table import SCHEDULES

    now = time.time()
    values = {
        "stillhouse_schedule_interval_seconds": interval_seconds,
        "stillhouse_schedule_checked_timestamp_seconds": now,
        "stillhouse_schedule_in_flight": float(in_flight),
    }
    if fresh:
        values["stillhouse_schedule_fresh_timestamp_seconds"] = now
    push(settings.gateway, SCHEDULES, values, {"schedule": label(schedule)}, log, keep=True)
