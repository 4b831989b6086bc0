"""One check by the watcher, with a cluster in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cluster_in_memory import Memory

from stillhouse import cli
from stillhouse.core.remote.dvc_source import Found
from stillhouse.kubeflow.pipelines.schedules import watch as watching
from stillhouse.kubeflow.pipelines.schedules.file import Watch
from stillhouse.kubeflow.pipelines.schedules.watch import look
from stillhouse.releases.tags import Release


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Return a watcher whose repository and champion the test sets."""
    state = SimpleNamespace(digest="one.dir", commit="c1", champion=None, refused=False, more=(), cluster=Memory())
    state.watch = Watch(name="articles", pipeline="refresh", releases="r.git", repo="a.git", path="corpus")
    monkeypatch.setattr(watching, "look_up", lambda repo, revision, path: Found(repo, path, state.commit, state.digest))
    monkeypatch.setattr(watching, "in_use", lambda watch: (state.champion, frozenset(state.more), state.refused))
    return state


def released(digest: str, commit: str = "c1") -> Release:
    return Release((1, 0, 0), commit, {"source": {"digest": digest, "commit": commit}, "artifacts": {}})


def test_a_watcher_starts_one_run_for_a_change(watched: SimpleNamespace) -> None:
    watched.champion = released("one.dir")
    assert look(watched.watch, watched.cluster).kind == "unchanged"
    watched.commit = "c2"  # another commit that leaves the path as it was
    assert look(watched.watch, watched.cluster).kind == "unchanged" and not watched.cluster.started
    watched.digest = "two.dir"
    seen = look(watched.watch, watched.cluster)
    assert seen.kind == "started" and seen.run in watched.cluster.started
    assert watched.cluster.parameters[seen.run] == {
        "releases": "r.git",
        "repo": "a.git",
        "source": "corpus",
        "revision": "c2",
    }
    for state in ("PENDING", "RUNNING", "SUCCEEDED"):
        watched.cluster.finish(seen.run, state)
        assert look(watched.watch, watched.cluster).kind == "known"
    watched.champion = released("two.dir", "c2")
    assert look(watched.watch, watched.cluster).kind == "unchanged"
    assert len(watched.cluster.started) == 1


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_a_run_that_failed_is_started_anew_until_its_attempts_are_spent(
    attempts: int, watched: SimpleNamespace
) -> None:
    watch = replace(watched.watch, attempts=attempts)
    for _ in range(attempts):
        seen = look(watch, watched.cluster)
        assert seen.kind == "started" and "again" not in watched.cluster.parameters[seen.run]
        assert look(watch, watched.cluster).kind == "known", "it is in flight"
        watched.cluster.finish(seen.run, "FAILED")
    assert look(watch, watched.cluster).kind == "known"
    again = look(watch, watched.cluster, again=True)
    assert again.kind == "started" and len(watched.cluster.started) == attempts + 1
    assert look(watch, watched.cluster, again=True).kind == "known", "that attempt is in flight"


@pytest.mark.parametrize("change", [{"most_loss": 0.1}, {"again": True}])
def test_other_rules_start_a_run_for_a_corpus_that_was_refused(
    change: dict[str, Any], watched: SimpleNamespace
) -> None:
    """A run that refuses a corpus still succeeds."""
    first = look(watched.watch, watched.cluster)
    changed = replace(watched.watch, parameters=change)
    assert look(changed, watched.cluster).kind == "known", "somebody is at work on it"
    watched.cluster.finish(first.run)
    assert look(watched.watch, watched.cluster).kind == "known"
    second = look(changed, watched.cluster)
    assert second.kind == "started" and watched.cluster.parameters[second.run].items() >= change.items()
    watched.cluster.finish(second.run)
    assert look(changed, watched.cluster).kind == look(watched.watch, watched.cluster).kind == "known"


def test_again_starts_another_run_for_a_known_corpus(watched: SimpleNamespace) -> None:
    watched.cluster.finish(look(watched.watch, watched.cluster).run)
    seen = look(watched.watch, watched.cluster, again=True)
    assert seen.kind == "started" and watched.cluster.parameters[seen.run]["again"] is True
    watched.cluster.finish(seen.run)
    other = replace(watched.watch, pipeline="somebody-s")
    assert "again" not in watched.cluster.parameters[look(other, watched.cluster, again=True).run]


def test_a_file_without_watches_is_refused_by_the_watcher(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "schedules.yaml").write_text("schedules: {}")
    assert cli.main(["schedule", "watch", str(tmp_path / "schedules.yaml")]) == 2
    assert "schedules.yaml has no `watches`; add them, as docs/releases.md shows" in capsys.readouterr().err


def test_a_rollback_makes_the_watcher_look_again(watched: SimpleNamespace) -> None:
    """Another champion means another comparison, so the same content is worth a run."""
    watched.champion = released("zero.dir")
    watched.cluster.finish(look(watched.watch, watched.cluster).run)
    watched.champion = Release((2, 0, 0), "c0", {"source": {"digest": "other.dir"}, "artifacts": {}})
    assert look(watched.watch, watched.cluster).kind == "started"


def test_no_second_refresh_starts_while_one_runs(watched: SimpleNamespace) -> None:
    """A rollback changes the champion, and a commit the corpus, while the first run is still in flight."""
    watched.champion = released("zero.dir")
    first = look(watched.watch, watched.cluster)
    watched.champion = Release((2, 0, 0), "c0", {"source": {"digest": "other.dir"}, "artifacts": {}})
    seen = look(watched.watch, watched.cluster)
    assert (seen.kind, seen.run, seen.in_flight) == ("known", first.run, True)
    watched.digest = "two.dir"
    assert look(watched.watch, watched.cluster, again=True).run == first.run
    other = replace(watched.watch, name="articles-of-others")
    assert look(other, watched.cluster).kind == "started", "it refreshes other releases"
    assert look(watched.watch, watched.cluster).run == first.run
    watched.cluster.finish(first.run, "CANCELING")
    assert look(watched.watch, watched.cluster).kind == "started", "one for the state of now"


def test_a_release_is_fresh_again_once_the_run_for_a_change_has_ended(watched: SimpleNamespace) -> None:
    watched.champion, watched.watch = released("one.dir"), replace(watched.watch, attempts=1)
    seen = look(watched.watch, watched.cluster)
    assert (seen.fresh, seen.in_flight) == (True, False)
    watched.digest = "two.dir"
    started = look(watched.watch, watched.cluster)
    assert (started.fresh, started.in_flight) == (False, True)
    seen = look(watched.watch, watched.cluster)
    assert (seen.fresh, seen.in_flight) == (False, True), "somebody is at work on it"
    watched.cluster.finish(started.run, "FAILED")
    seen = look(watched.watch, watched.cluster)
    assert (seen.fresh, seen.in_flight) == (False, False)
