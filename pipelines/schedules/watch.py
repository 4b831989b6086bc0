"""One look of the watcher: has a corpus changed since the release in use, and is nobody at work on it yet?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.schedules.cluster import Runs
from pipelines.schedules.file import Watch
from stillhouse.artifacts import digest_json
from stillhouse.refresh.workspace import open_clone
from stillhouse.versions.dvc_source import Found, look_up
from stillhouse.versions.releases import Release, read_history


@dataclass(frozen=True)
class Seen:
    """What a look found: `unchanged`, `known` (a run for it is there already), or `started`."""

    watch: str
    kind: str
    why: str
    run: str = ""

    def __str__(self) -> str:
        return f"{self.watch}: {self.kind}, {self.why}"


def look(watch: Watch, cluster: Runs, *, again: bool = False) -> Seen:
    """Compares DVC's digest of the watched path with that of the champion's corpus, and starts the pipeline.

    The run's name is made of both, of the pipeline's version and of its parameters, so that of two looks one starts it,
    and other rules start another. One that has ended is not repeated unless `again`: it failed, and its log says why,
    or its challenger was refused. Raises `InputError` for repositories that cannot be read.
    """
    found = look_up(watch.repo, watch.revision, watch.path)
    champion = champion_of(watch)
    if champion and content_of(found) == _content(champion.record.get("source", {})):
        return Seen(watch.name, "unchanged", f"{watch.path} is that of {champion.name}")
    key = digest_json([watch.name, content_of(found), champion.tag if champion else ""])[:12]
    version = cluster.version_of(watch.pipeline, watch.version)
    rules = digest_json([watch.pipeline, version, watch.branch, dict(watch.parameters)])[:8]
    name = f"{watch.name}-{key}-{rules}"
    for_change = [run for run in cluster.runs() if run.name.startswith(f"{watch.name}-{key}-")]
    for run in for_change:
        if run.in_flight:
            return Seen(watch.name, "known", f"run {run.name} is {run.state}", run.id)
    attempts = [run for run in for_change if run.name.startswith(name)]
    if attempts and not again:
        return Seen(watch.name, "known", f"run {name} {attempts[0].state}; --again starts another", attempts[0].id)
    if attempts:
        name = f"{name}-{len(attempts) + 1}"
    parameters = watch.run_parameters(found.commit, again=again)
    run_id = cluster.start(watch.pipeline, watch.version, name, parameters)
    return Seen(watch.name, "started", f"{watch.path} is another at {found.commit[:12]}: run {name}", run_id)


def champion_of(watch: Watch) -> Release | None:
    """The release in use, read from a copy of the repository without its data."""
    with TemporaryDirectory() as place:
        return read_history(open_clone(watch.releases, watch.branch, Path(place) / "releases")).champion


def content_of(found: Found) -> str:
    """What tells two states of a path apart: DVC's digest, or the commit for what git itself tracks."""
    return found.digest or found.commit


def _content(source: dict[str, str]) -> str:
    return source.get("digest") or source.get("commit", "")
