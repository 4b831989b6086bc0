"""One look of the watcher: has a corpus changed since the release in use, and is nobody at work on it yet?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from stillhouse.artifacts import digest_json
from stillhouse.pipelines.schedules.cluster import FAILED, Runs
from stillhouse.pipelines.schedules.file import Watch
from stillhouse.pipelines.schedules.parameters import refuse_default_image
from stillhouse.releases.refresh.workspace import open_clone
from stillhouse.releases.tags import Release, read_history, refused_beside
from stillhouse.remote.dvc_source import Found, look_up


@dataclass(frozen=True)
class Seen:
    """What a look found: `unchanged`, `known` (a run for it is there already), or `started`.

    `fresh`: the release is of the current corpus. `in_flight`: a run is at work on it.
    """

    watch: str
    kind: str
    why: str
    run: str = ""
    fresh: bool = False
    in_flight: bool = False

    def __str__(self) -> str:
        return f"{self.watch}: {self.kind}, {self.why}"


@dataclass(frozen=True)
class InUse:
    """What the repository of the releases says: which is in use, and the contents of all corpora that have one.

    `refused`: a challenger of the one in use was refused.
    """

    champion: Release | None
    released: frozenset[str] = frozenset()
    refused: bool = False


def look(watch: Watch, cluster: Runs, *, again: bool = False) -> Seen:
    """Compares DVC's digest of the watched path with that of the champion's corpus, and starts the pipeline.

    The run's name is made of both, of the pipeline's version and of its parameters, so that of two looks one starts it,
    and other rules start another. One that failed is started anew until the watch's `attempts` are spent. Otherwise one
    that has ended is not repeated unless `again`: its log says why it failed, or its challenger was refused. Raises
    `InputError` for repositories that cannot be read, and for a watch whose runs would fail for want of an image,
    whether one is due or not.
    """
    version = cluster.version_of(watch.pipeline, watch.version)
    refuse_default_image(watch, version)
    found = look_up(watch.repo, watch.revision, watch.path)
    now = in_use(watch)
    champion = now.champion
    if champion and content_of(found) == _content(champion):
        return Seen(watch.name, "unchanged", f"{watch.path} is that of {champion.name}", fresh=True)
    key = digest_json([watch.name, content_of(found), champion.tag if champion else ""])[:12]
    rules = digest_json([watch.pipeline, version.name, watch.branch, watch.service_account, dict(watch.parameters)])[:8]
    name = f"{watch.name}-{key}-{rules}"
    for_change = [run for run in cluster.runs() if run.name.startswith(f"{watch.name}-{key}-")]
    for run in for_change:
        if run.in_flight:
            return Seen(watch.name, "known", f"run {run.name} is {run.state}", run.id, in_flight=True)
    attempts = [run for run in for_change if run.name.startswith(name)]
    failed = all(run.state == FAILED for run in attempts)
    if attempts and not again and not (failed and len(attempts) < watch.attempts):
        why = f"run {name} {attempts[0].state}; --again starts another"
        # One that released nothing and was refused nothing has found the release's own passages under another digest.
        succeeded = any(run.state == "SUCCEEDED" for run in for_change)
        fresh = succeeded and not now.refused and content_of(found) not in now.released
        return Seen(watch.name, "known", why, attempts[0].id, fresh=fresh and champion is not None)
    if attempts:
        name = f"{name}-{len(attempts) + 1}"
    parameters = watch.run_parameters(found.commit, again=again)
    run_id = cluster.start(watch.pipeline, version.name, name, parameters, watch.service_account)
    why = f"{watch.path} is another at {found.commit[:12]}: run {name}"
    return Seen(watch.name, "started", why, run_id, in_flight=True)


def in_use(watch: Watch) -> InUse:
    """What is released, read from a copy of the repository without its data."""
    with TemporaryDirectory() as place:
        git = open_clone(watch.releases, watch.branch, Path(place) / "releases")
        history = read_history(git)
        released = frozenset(_content(release) for release in history.releases)
        refused = bool(history.champion and refused_beside(git, history.champion))
        return InUse(history.champion, released, refused)


def content_of(found: Found) -> str:
    """What distinguishes two states of a path: DVC's digest, or the commit for what git itself tracks."""
    return found.digest or found.commit


def _content(release: Release) -> str:
    """The same for the corpus that a release was made from."""
    source = release.record.get("source", {})
    return source.get("digest") or source.get("commit", "")
