"""Schedules against a cluster in memory: what `apply` does to it, what it never does, and one look of the watcher."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from kfp_server_api import ApiException
from urllib3.exceptions import MaxRetryError

from pipelines.schedules import watch as watching
from pipelines.schedules.apply import MARK, apply, name_of
from pipelines.schedules.cluster import Kubeflow, Recurring, Run
from pipelines.schedules.file import Parameter, Schedule, Watch, read_schedules
from pipelines.schedules.parameters import refuse_parameters
from pipelines.schedules.watch import look
from stillhouse import cli
from stillhouse.errors import InputError
from stillhouse.versions.dvc_source import Found
from stillhouse.versions.releases import Release


class Memory:
    """A cluster that keeps Kubeflow's rules: names are not unique, deleting a recurring run ends its runs."""

    def __init__(self) -> None:
        self.recurring: dict[str, tuple[Recurring, Schedule | None]] = {}
        self.started: dict[str, Run] = {}
        self.parameters: dict[str, Mapping[str, Parameter]] = {}
        self.ended: list[str] = []
        self.newest = "v1"
        self.refused: set[str] = set()
        self._ids = map(str, itertools.count(1))

    def recurring_runs(self) -> list[Recurring]:
        return [entry for entry, _ in self.recurring.values()]

    def runs(self) -> list[Run]:
        return list(self.started.values())

    def version_of(self, pipeline: str, version: str) -> str:
        if version == "nowhere":
            raise InputError("the pipeline has no version 'nowhere'")
        return version or self.newest

    def create(self, schedule: Schedule, name: str, description: str) -> str:
        if schedule.name in self.refused:
            raise InputError("Kubeflow Pipelines refuses the recurring run (400): the cron is none")
        number = next(self._ids)
        self.recurring[number] = (Recurring(number, name, description, schedule.enabled), schedule)
        return number

    def set_enabled(self, recurring: str, enabled: bool) -> None:
        entry, schedule = self.recurring[recurring]
        self.recurring[recurring] = (Recurring(entry.id, entry.name, entry.description, enabled), schedule)

    def delete(self, recurring: str) -> None:
        del self.recurring[recurring]
        self.ended += [run.id for run in self.runs() if run.recurring == recurring and run.in_flight]

    def start(self, pipeline: str, version: str, name: str, parameters: Mapping[str, Parameter]) -> str:
        number = next(self._ids)
        self.started[number] = Run(number, name, "PENDING")
        self.parameters[number] = parameters
        return number

    def fire(self, recurring: str, state: str = "RUNNING") -> str:
        number = next(self._ids)
        self.started[number] = Run(number, f"run {number}", state, recurring)
        return number

    def finish(self, run: str, state: str = "SUCCEEDED") -> None:
        old = self.started[run]
        self.started[run] = Run(old.id, old.name, state, old.recurring)

    @property
    def enabled(self) -> list[str]:
        return sorted(entry.name for entry in self.recurring_runs() if entry.enabled)


def schedule(name: str = "nightly", **changes: Any) -> Schedule:
    return Schedule(**{"name": name, "pipeline": "refresh", "cron": "0 0 3 * * *"} | changes)


def actions(changes: list[Any]) -> list[str]:
    return [change.action for change in changes]


def test_apply_makes_the_cluster_equal_to_the_file() -> None:
    cluster = Memory()
    two = [schedule(), schedule("weekly", cron="0 0 4 * * 0", enabled=False)]
    assert actions(apply(two, cluster, dry=True)) == ["create", "create"] and not cluster.recurring
    apply(two, cluster)
    assert cluster.enabled == [name_of(two[0])] and len(cluster.recurring) == 2
    before = dict(cluster.recurring)
    assert actions(apply(two, cluster)) == ["keep", "keep"] and cluster.recurring == before
    assert actions(apply([two[0]], cluster)) == ["keep", "delete"] and len(cluster.recurring) == 1
    assert actions(apply([schedule(enabled=False)], cluster)) == ["disable"] and cluster.enabled == []
    assert actions(apply([schedule()], cluster)) == ["enable"] and len(cluster.recurring) == 1


CHANGES: dict[str, dict[str, Any]] = {
    "cron": {"cron": "0 30 3 * * *"},
    "parameters": {"parameters": {"revision": "main"}},
    "version": {"version": "v2"},
    "pipeline": {"pipeline": "train"},
    "concurrency": {"max_concurrency": 2},
    "catchup": {"catchup": True},
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_a_successor(change: str) -> None:
    cluster = Memory()
    apply([schedule()], cluster)
    new = schedule(**CHANGES[change])
    assert actions(apply([new], cluster)) == ["create", "disable", "delete"]
    assert [entry.name for entry in cluster.recurring_runs()] == [name_of(new)]


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "CANCELING", "PAUSED", "RUNTIME_STATE_UNSPECIFIED"])
def test_a_schedule_whose_run_is_in_flight_is_never_deleted(state: str) -> None:
    """It fires no more, its successor is there, and a later `apply` deletes it."""
    cluster = Memory()
    apply([schedule()], cluster)
    [old] = cluster.recurring
    run = cluster.fire(old, state)
    new = schedule(cron="0 0 5 * * *")
    for wanted, done in (
        ([new], ["create", "disable", "wait"]),
        ([new], ["keep", "wait"]),
        ([], ["disable", "wait", "delete"]),
    ):
        found = actions(apply(wanted, cluster))
        assert sorted(found) == sorted(done)
        assert old in cluster.recurring and not cluster.ended
    assert cluster.enabled == []
    cluster.finish(run, "FAILED")
    assert actions(apply([], cluster)) == ["delete"] and not cluster.recurring and not cluster.ended


def test_a_run_that_starts_while_apply_works_is_seen() -> None:
    """It fires between the first look and the moment when it is disabled."""
    cluster = Memory()
    apply([schedule()], cluster)
    [old] = cluster.recurring
    disable = cluster.set_enabled

    def fire_first(recurring: str, enabled: bool) -> None:
        cluster.fire(recurring)
        disable(recurring, enabled)

    cluster.set_enabled = fire_first  # type: ignore[method-assign]
    assert actions(apply([], cluster)) == ["disable", "wait"] and old in cluster.recurring


def test_what_has_no_successor_yet_stays_in_use() -> None:
    """The cluster refuses one of three: its predecessor goes on, the others are replaced as ever."""
    cluster = Memory()
    apply([schedule(), schedule("weekly"), schedule("yearly")], cluster)
    cluster.refused = {"nightly"}
    new = [schedule(cron="0 0 5 * * *"), schedule("weekly", cron="0 0 6 * * *")]
    changes = apply(new, cluster)
    assert actions(changes) == ["fail", "create", "disable", "delete"]
    assert "create: Kubeflow Pipelines refuses the recurring run (400)" in changes[0].why
    kept = [name_of(schedule()), name_of(new[1]), name_of(schedule("yearly"))]
    assert cluster.enabled == kept, "what may have another name in the file stays, too"
    cluster.refused = set()
    assert sorted(actions(apply(new, cluster))) == sorted(["create", "keep", *["disable", "delete"] * 2])
    assert cluster.enabled == sorted(map(name_of, new))


@pytest.mark.parametrize("dry", [True, False])
def test_a_version_that_is_not_there_is_refused_before_anything_is_changed(dry: bool) -> None:
    cluster = Memory()
    apply([schedule()], cluster)
    before = dict(cluster.recurring)
    with pytest.raises(InputError, match="no version 'nowhere'"):
        apply([schedule("other"), schedule(version="nowhere")], cluster, dry=dry)
    assert cluster.recurring == before


@pytest.mark.parametrize("in_flight", [None, "1", "2"])
def test_of_two_of_the_same_name_one_is_left(in_flight: str | None) -> None:
    """Two `apply` at a time made both."""
    cluster = Memory()
    for _ in range(2):
        cluster.create(schedule(), name_of(schedule()), f"{MARK} nightly")
    run = cluster.fire(in_flight) if in_flight else ""
    apply([schedule()], cluster)
    assert not cluster.ended and cluster.recurring["1"][0].enabled
    if in_flight == "2":
        assert not cluster.recurring["2"][0].enabled
        cluster.finish(run)
        apply([schedule()], cluster)
    assert list(cluster.recurring) == ["1"] and actions(apply([schedule()], cluster)) == ["keep"]


def test_what_others_made_is_left_alone() -> None:
    cluster = Memory()
    cluster.create(schedule(), "nightly-0123456789", "by hand")
    before = dict(cluster.recurring)
    assert apply([], cluster) == [] and cluster.recurring == before


BAD = {
    "five fields": ({"schedules": {"a": {"pipeline": "p", "cron": "0 3 * * *"}}}, "put the seconds first"),
    "no cron": ({"schedules": {"a": {"pipeline": "p"}}}, "schedules: a: cron is missing"),
    "misspelt": ({"schedules": {"a": {"pipelin": "p", "cron": "0 0 3 * * *"}}}, "did you mean 'pipeline'"),
    "part": ({"schedule": {}}, "unknown entry 'schedule'; did you mean 'schedules'"),
    "name": ({"schedules": {"Nightly!": {}}}, "small letters, digits and dashes"),
    "type": (
        {"schedules": {"a": {"pipeline": "p", "cron": "0 0 3 * * *", "enabled": "yes"}}},
        "enabled must be true or",
    ),
    "number": ({"schedules": {"a": {"pipeline": "p", "cron": "0 0 3 * * *", "version": 2}}}, "version must be text"),
    "crowd": ({"schedules": {"a": {"pipeline": "p", "cron": "0 0 3 * * *", "max_concurrency": 99}}}, "from 1 to 10"),
    "nested": (
        {"schedules": {"a": {"pipeline": "p", "cron": "0 0 3 * * *", "parameters": {"x": {"y": 1}}}}},
        "the parameter 'x' must be text",
    ),
    "watched": (
        {
            "watches": {
                "a": {"pipeline": "p", "releases": "r", "repo": "r", "path": "x", "parameters": {"revision": "1"}}
            }
        },
        "the parameter 'revision' is set by the watch itself",
    ),
    "token": (
        {"watches": {"a": {"pipeline": "p", "releases": "https://bob:hush@host/r", "repo": "r", "path": "x"}}},
        "watches: a: releases holds a password or token",
    ),
    "token of a parameter": (
        {
            "schedules": {
                "a": {"pipeline": "p", "cron": "0 0 3 * * *", "parameters": {"releases": "https://hush@host/r"}},
            }
        },
        "schedules: a: the parameter 'releases' holds a password or token",
    ),
    "list": ({"watches": ["a"]}, "watches must map names to settings"),
}


CRON = {
    "0 0 25 * * *": "hours is '25'; write *, or numbers from 0 to 23",
    "60 0 3 * * *": "seconds is '60'",
    "0 0 3 0 * *": "day of the month is '0'",
    "0 0 3 * 13 *": "month is '13'",
    "0 0 3 * * 7": "Sunday is 0",
    "0 5-2 3 * * *": "minutes is '5-2'",
    "0 */0 3 * * *": "minutes is",
    "0 0 3 L * *": "day of the month is 'L'",
    "0 1-2-3 3 * * *": "minutes is",
    "0 1, 3 * * *": "minutes is '1,'",
}


@pytest.mark.parametrize("line", CRON)
def test_a_cron_line_that_kubeflow_would_refuse_is_refused_here(line: str) -> None:
    with pytest.raises(InputError, match=re.escape(CRON[line])):
        schedule(cron=line)


@pytest.mark.parametrize("line", ["*/10 0-30/5 3,4 1-15 * ?", "0 5/15 * ? Jan-MAR,12 mon-fri", "59 59 23 31 12 6"])
def test_a_cron_line_that_kubeflow_takes_is_taken(line: str) -> None:
    assert schedule(cron=line).cron == line


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_before_the_cluster_is_asked(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content, message = BAD[case]
    (tmp_path / "schedules.yaml").write_text(yaml.safe_dump(content))
    for action in ("apply", "watch"):
        assert cli.main(["schedule", action, str(tmp_path / "schedules.yaml")]) == 2
        said = capsys.readouterr().err
        assert message in said and "hush" not in said


WRONG_PARAMETERS = {
    "unknown": ({"releases": "r", "fine_tune_abov": 0.1}, "schedule a: pipeline refresh has no parameter"),
    "range": ({"releases": "r", "alpha": 2.0}, "schedule a: pipeline refresh.alpha must be from 0 to 1"),
    "missing": ({"alpha": 0.1}, "schedule a: .*releases is empty"),
    "type": ({"releases": "r", "again": "yes"}, "again must be true or false"),
    "pod": ({"releases": "r", "git_secret": "My Secret"}, "git_secret is 'My Secret'"),
    "image": ({"releases": "r", "image": "registry.example/stillhouse:latest"}, "not named by its digest"),
}


@pytest.mark.parametrize("case", WRONG_PARAMETERS)
def test_parameters_that_a_run_would_refuse_are_refused_here(case: str, tmp_path: Path) -> None:
    parameters, message = WRONG_PARAMETERS[case]
    path = tmp_path / "schedules.yaml"
    entry = {"pipeline": "refresh", "cron": "0 0 3 * * *", "parameters": parameters}
    path.write_text(yaml.safe_dump({"schedules": {"a": entry}}))
    with pytest.raises(InputError, match=message):
        refuse_parameters(read_schedules(path))


def test_pipelines_of_others_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "schedules.yaml"
    entry = {"pipeline": "somebody-s", "cron": "0 0 3 * * *", "parameters": {"x": 1}}
    path.write_text(yaml.safe_dump({"schedules": {"a": entry}}))
    refuse_parameters(read_schedules(path))


def test_the_file_of_the_docs_is_read(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "releases.md").read_text()
    [text] = [part for part in page.split("```yaml\n")[1:] if part.startswith("experiment:")]
    path = tmp_path / "schedules.yaml"
    path.write_text(text.split("```")[0])
    found = read_schedules(path)
    assert found.schedules and found.watches
    refuse_parameters(found)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A watch whose repository and champion the test sets."""
    state = SimpleNamespace(digest="one.dir", commit="c1", champion=None, cluster=Memory())
    state.watch = Watch(name="articles", pipeline="refresh", releases="r.git", repo="a.git", path="corpus")
    monkeypatch.setattr(watching, "look_up", lambda repo, revision, path: Found(repo, path, state.commit, state.digest))
    monkeypatch.setattr(watching, "champion_of", lambda watch: state.champion)
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


def test_a_watch_s_branch_is_the_run_s(watched: SimpleNamespace) -> None:
    watch = Watch(name="a", pipeline="refresh", releases="r.git", repo="a.git", path="corpus", branch="production")
    seen = look(watch, watched.cluster)
    assert watched.cluster.parameters[seen.run]["branch"] == "production"


def test_a_run_that_failed_is_started_again_only_when_asked(watched: SimpleNamespace) -> None:
    first = look(watched.watch, watched.cluster)
    watched.cluster.finish(first.run, "FAILED")
    assert look(watched.watch, watched.cluster).kind == "known"
    again = look(watched.watch, watched.cluster, again=True)
    assert again.kind == "started" and again.run != first.run
    assert look(watched.watch, watched.cluster, again=True).kind == "known", "the second attempt is in flight"


@pytest.mark.parametrize("change", [{"most_loss": 0.1}, {"again": True}])
def test_other_rules_start_a_run_for_a_corpus_that_was_refused(
    change: dict[str, Any], watched: SimpleNamespace
) -> None:
    """The refusal was a run that succeeded."""
    first = look(watched.watch, watched.cluster)
    changed = replace(watched.watch, parameters=change)
    assert look(changed, watched.cluster).kind == "known", "somebody is at work on it"
    watched.cluster.finish(first.run)
    assert look(watched.watch, watched.cluster).kind == "known"
    second = look(changed, watched.cluster)
    assert second.kind == "started" and watched.cluster.parameters[second.run].items() >= change.items()
    watched.cluster.finish(second.run)
    assert look(changed, watched.cluster).kind == look(watched.watch, watched.cluster).kind == "known"


def test_another_recipe_starts_a_run_for_a_corpus_that_was_refused(watched: SimpleNamespace) -> None:
    """The recipe is in the pipeline, whose newest version is taken."""
    watched.cluster.finish(look(watched.watch, watched.cluster).run)
    watched.cluster.newest = "v2"
    assert look(watched.watch, watched.cluster).kind == "started"


def test_again_tries_what_was_refused(watched: SimpleNamespace) -> None:
    watched.cluster.finish(look(watched.watch, watched.cluster).run)
    seen = look(watched.watch, watched.cluster, again=True)
    assert seen.kind == "started" and watched.cluster.parameters[seen.run]["again"] is True
    watched.cluster.finish(seen.run)
    other = replace(watched.watch, pipeline="somebody-s")
    assert "again" not in watched.cluster.parameters[look(other, watched.cluster, again=True).run]


def test_a_watch_that_cannot_be_looked_at_stops_no_other(
    watched: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The API refuses the first run that is asked for."""

    class Refusing(Client):
        def run_pipeline(self, job_name: str, **named: Any) -> Any:
            self.calls.append((job_name, named))
            if len(self.calls) == 1:
                raise refusal(400, '{"error": "long", "message": "Invalid input error: no parameter \\"x\\""}')
            return SimpleNamespace(run_id="new")

    client = Refusing()
    monkeypatch.setattr("pipelines.schedules.cluster._connect", lambda endpoint, namespace: client)
    entry = {"pipeline": "refresh", "releases": "r.git", "repo": "a.git", "path": "corpus"}
    (tmp_path / "schedules.yaml").write_text(yaml.safe_dump({"watches": {"one": entry, "two": entry}}))
    assert cli.main(["schedule", "watch", str(tmp_path / "schedules.yaml")]) == 2
    said = capsys.readouterr()
    assert (
        'one: not looked at, Kubeflow Pipelines refuses the run (400): Invalid input error: no parameter "x"'
        in said.out
    )
    assert "two: started" in said.out and "the watch 'one' could not be looked at" in said.err


def test_a_rollback_makes_the_watcher_look_again(watched: SimpleNamespace) -> None:
    """Another champion means another comparison, so the same content is worth a run."""
    watched.champion = released("zero.dir")
    watched.cluster.finish(look(watched.watch, watched.cluster).run)
    watched.champion = Release((2, 0, 0), "c0", {"source": {"digest": "other.dir"}, "artifacts": {}})
    assert look(watched.watch, watched.cluster).kind == "started"


def refusal(status: int, body: str) -> Exception:
    error = ApiException(status=status, reason="Bad Request")
    error.body = body
    return error


class Client:
    """What of kfp's client is used, answering in pages as the server does."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def list_recurring_runs(self, page_token: str = "", page_size: int = 10, namespace: str | None = None) -> Any:
        entries = [
            SimpleNamespace(recurring_run_id=str(n), display_name=f"r{n}", description=MARK, status="ENABLED")
            for n in range(3)
        ]
        return self._page(entries, page_token, "recurring_runs")

    def list_runs(self, page_token: str = "", page_size: int = 10, namespace: str | None = None) -> Any:
        entries = [
            SimpleNamespace(run_id=str(n), display_name=f"x{n}", state=state, recurring_run_id=None)
            for n, state in enumerate((None, "RUNNING", "FAILED"))
        ]
        return self._page(entries, page_token, "runs")

    def _page(self, entries: list[Any], token: str, field: str) -> Any:
        at = int(token or 0)
        more = str(at + 1) if at + 1 < len(entries) else None
        return SimpleNamespace(**{field: entries[at : at + 1] or None, "next_page_token": more})

    def create_experiment(self, name: str, namespace: str | None = None) -> Any:
        return SimpleNamespace(experiment_id=f"experiment {name}")

    def get_pipeline_id(self, name: str) -> str | None:
        return "p1" if name == "refresh" else None

    def list_pipeline_versions(self, pipeline: str, page_size: int, sort_by: str) -> Any:
        return SimpleNamespace(pipeline_versions=[SimpleNamespace(display_name="v1", pipeline_version_id="id1")])

    def create_recurring_run(self, **named: Any) -> Any:
        self.calls.append(("create", named))
        return SimpleNamespace(recurring_run_id="new")


def test_kubeflow_is_asked_page_by_page() -> None:
    cluster = Kubeflow("retraining", client=Client())
    assert [entry.name for entry in cluster.recurring_runs()] == ["r0", "r1", "r2"]
    assert [(run.name, run.in_flight) for run in cluster.runs()] == [("x0", True), ("x1", True), ("x2", False)]


def test_kubeflow_is_told_what_the_file_says() -> None:
    client = Client()
    cluster = Kubeflow("retraining", client=client)
    wanted = schedule(parameters={"revision": "main"}, max_concurrency=2)
    assert cluster.create(wanted, "n", "d") == "new"
    [(_, named)] = client.calls
    assert (named["experiment_id"], named["pipeline_id"], named["version_id"]) == ("experiment retraining", "p1", None)
    assert (named["cron_expression"], named["no_catchup"], named["max_concurrency"]) == ("0 0 3 * * *", True, 2)
    assert named["params"] == {"revision": "main"} and named["enabled"] is True
    cluster.create(schedule(version="v1"), "n", "d")
    assert client.calls[-1][1]["version_id"] == "id1"
    with pytest.raises(InputError, match="has no pipeline 'train'"):
        cluster.create(schedule(pipeline="train"), "n", "d")
    with pytest.raises(InputError, match="has no version 'v9'; it has: v1"):
        cluster.create(schedule(version="v9"), "n", "d")
    with pytest.raises(InputError, match="has no version 'v9'; it has: v1"):
        cluster.version_of("refresh", "v9")
    assert cluster.version_of("refresh", "") == "v1"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            refusal(400, '{"message": "Schedule cron is not\\nsupported"}'),
            r"refuses the recurring run \(400\): .*not supported",
        ),
        (refusal(502, "<html>"), r"refuses the recurring run \(502\): <html>"),
        (refusal(500, ""), r"\(500\): Bad Request"),
        (MaxRetryError(None, "/apis"), "does not answer"),  # type: ignore[arg-type]
    ],
)
def test_what_the_server_refuses_is_told_in_a_sentence(
    error: Exception, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = Client()

    def refuse(**named: Any) -> None:
        raise error

    client.create_recurring_run = refuse  # type: ignore[method-assign]
    monkeypatch.setattr("pipelines.schedules.cluster._connect", lambda endpoint, namespace: client)
    monkeypatch.setattr(client, "_page", lambda *given: SimpleNamespace(recurring_runs=None, next_page_token=""))
    entry = {"pipeline": "refresh", "cron": "0 0 3 * * *", "parameters": {"releases": "r"}}
    (tmp_path / "schedules.yaml").write_text(yaml.safe_dump({"schedules": {"a": entry}}))
    assert cli.main(["schedule", "apply", str(tmp_path / "schedules.yaml")]) == 2
    said = capsys.readouterr()
    assert re.search(message, said.err) and said.out.startswith("fail")
    assert "stays in use" in said.err and "Traceback" not in said.err


def test_the_client_has_the_methods_that_are_called() -> None:
    """By kfp's own signatures, since the stand-in above takes whatever it is given."""
    import inspect

    from kfp import Client as Real

    for name, names in {
        "create_recurring_run": {
            *("experiment_id", "job_name", "description", "cron_expression", "max_concurrency", "no_catchup", "params"),
            *("pipeline_id", "version_id", "enabled"),
        },
        "run_pipeline": {"experiment_id", "job_name", "params", "pipeline_id", "version_id"},
        "list_runs": {"page_token", "page_size", "namespace"},
        "list_recurring_runs": {"page_token", "page_size", "namespace"},
        "list_pipeline_versions": {"pipeline_id", "page_size", "sort_by"},
        "enable_recurring_run": {"recurring_run_id"},
        "disable_recurring_run": {"recurring_run_id"},
        "delete_recurring_run": {"recurring_run_id"},
    }.items():
        assert names <= set(inspect.signature(getattr(Real, name)).parameters), name


def test_an_unreachable_server_is_named_with_the_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "schedules.yaml").write_text("schedules: {}\n")
    assert cli.main(["schedule", "apply", str(tmp_path / "schedules.yaml"), "--endpoint", "http://127.0.0.1:9"]) == 2
    assert "cannot reach the Kubeflow API server http://127.0.0.1:9" in capsys.readouterr().err
