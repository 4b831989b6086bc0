"""What schedules and the watcher send to Kubeflow's API through kfp's own client, with a local server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubeflow_server import Api, Refusal, serve

from stillhouse import cli
from stillhouse.core.remote.dvc_source import Found
from stillhouse.kubeflow.pipelines.schedules import watch as watching
from stillhouse.kubeflow.pipelines.schedules.apply import MARK

SCHEDULE = {"pipeline": "refresh", "cron": "0 0 3 * * *", "parameters": {"releases": "r.git"}}
WATCH = {"pipeline": "refresh", "releases": "r.git", "repo": "a.git", "path": "corpus"}
CONTENT = {"service_account": "stillhouse-steps", "schedules": {"nightly": SCHEDULE}, "watches": {"articles": WATCH}}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Api]:
    """Start a server with a shared pipeline. The watched corpus was never released."""
    monkeypatch.setattr(watching, "look_up", lambda repo, revision, path: Found(repo, path, "c1", "one.dir"))
    monkeypatch.setattr(watching, "in_use", lambda watch: (None, frozenset(), False))
    with serve(monkeypatch, tmp_path) as known:
        known.keep("shared")
        monkeypatch.setenv("KF_PIPELINES_ENDPOINT", known.host)
        yield known


def schedule(folder: Path, action: str, *words: str, content: Any = CONTENT) -> int:
    """Run `stillhouse schedule ACTION` as in a pod of the manifests, where the environment has the API's address."""
    path = folder / "schedules.yaml"
    path.write_text(yaml.safe_dump(content))
    return cli.main(["schedule", action, str(path), *words])


def test_a_schedule_is_created_as_the_file_says(api: Api, tmp_path: Path) -> None:
    assert schedule(tmp_path, "apply") == 0
    [made] = api.recurring
    assert (made["trigger"], made["mode"]) == ({"cron_schedule": {"cron": "0 0 3 * * *"}}, "ENABLE")
    assert (made["max_concurrency"], made["no_catchup"], made["service_account"]) == (1, True, "stillhouse-steps")
    assert made["pipeline_version_reference"] == {"pipeline_id": "shared", "pipeline_version_id": ""}, "the newest"
    assert made["runtime_config"] == {"parameters": {"releases": "r.git"}} and made["experiment_id"] == "e1"
    schedule_of_v9 = CONTENT | {"schedules": {"nightly": SCHEDULE | {"version": "v9"}}}
    assert schedule(tmp_path, "apply", content=schedule_of_v9) == 2 and len(api.recurring) == 1


def test_a_failing_watch_stops_no_other(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The API refuses the first run."""
    post, refusals = api.post, iter([Refusal(400, 3, 'Invalid input error: no parameter "x"')])

    def refuse_once(path: str, body: dict[str, Any]) -> dict[str, Any]:
        for refusal in refusals:
            raise refusal
        return post(path, body)

    monkeypatch.setattr(api, "post", refuse_once)
    assert schedule(tmp_path, "watch", content={"watches": {"one": WATCH, "two": WATCH}}) == 2
    said = capsys.readouterr()
    reason = 'Kubeflow Pipelines refuses the run (400): Invalid input error: no parameter "x"'
    assert f"one: not checked, {reason}" in said.out
    assert "two: started" in said.out and "the watch 'one' could not be checked" in said.err


def test_a_retired_schedule_is_deleted_without_the_runs_that_it_started(api: Api, tmp_path: Path) -> None:
    entry = {"recurring_run_id": "r8", "display_name": "old", "description": f"{MARK} old", "status": "ENABLED"}
    api.kept.append(entry)
    assert schedule(tmp_path, "apply") == 0
    assert api.logged == ["delete r8 ORPHAN"]


PLACES = {
    "of the namespace": (["one", ""], "one"),
    "of the namespace, though another has one too": (["two", "one"], "one"),
    "of all": (["", "two"], ""),
    "of others": (["two"], None),
}


@pytest.mark.parametrize(("action", "says_all"), [("apply", False), ("watch", False), ("watch", True)])
@pytest.mark.parametrize("case", PLACES)
def test_a_pipeline_is_found_in_its_namespace(case: str, action: str, says_all: bool, api: Api, tmp_path: Path) -> None:
    there, found = PLACES[case]
    api.says_all = says_all
    api.pipelines.clear()
    for namespace in there:
        api.keep(f"id in {namespace}", namespace)
    assert schedule(tmp_path, action, "--namespace", "one") == (2 if found is None else 0)
    used = [made["pipeline_version_reference"]["pipeline_id"] for made in api.recurring + api.runs]
    assert used == ([] if found is None else [f"id in {found}"])
