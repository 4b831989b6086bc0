"""Runs on a cluster, with a small server that answers as Kubeflow's API does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubeflow_server import IMAGE, RUN, Api, serve

from stillhouse import cli
from stillhouse.core.errors import InputError
from stillhouse.kubeflow.pipelines.ir import Compiled
from stillhouse.kubeflow.pipelines.stored import upload
from stillhouse.kubeflow.pipelines.submit import Cluster, watch


def task(name: str, state: str, error: str = "") -> dict[str, Any]:
    times = {"create_time": "2026-01-01T00:00:00Z", "start_time": "2026-01-01T00:00:01Z"}
    done = {"end_time": "2026-01-01T00:00:08Z"} if state != "RUNNING" else {}
    logged = {"error": {"code": 13, "message": error}} if error else {}
    return {"task_id": name, "display_name": name, "state": state} | times | done | logged


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Api]:
    with serve(monkeypatch, tmp_path) as known:
        yield known


def submit(api: Api, *words: str) -> int:
    return cli.main(
        ["pipeline", "submit", "zero-shot", "--host", api.host, "--image", IMAGE, "--every", "0.01", *words]
    )


def test_a_run_is_started_with_its_parameters(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--placements", "gpu", "--parameter", 'corpora=["/volume/a"]', "--parameter", "accelerator_count=2"]
    assert submit(api, *words, "--run-name", "mine", "--service-account", "trainer") == 0
    [run] = api.runs
    assert (run["display_name"], run["experiment_id"], run["service_account"]) == ("mine", "e1", "trainer")
    given = run["runtime_config"]["parameters"]
    assert given == {"corpora": '["/volume/a"]', "accelerator_count": "2", "image": IMAGE}
    assert run["pipeline_spec"]["pipeline_spec"]["pipelineInfo"]["name"] == "zero-shot"
    assert "platforms" in run["pipeline_spec"]["platform_spec"]
    assert f"run {RUN}, version zero-shot-" in capsys.readouterr().out


def test_waiting_shows_the_progress_of_tasks(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    api.states = [
        {"state": "RUNNING", "run_details": {"task_details": [task("plan", "RUNNING")]}},
        {"state": "RUNNING", "run_details": {"task_details": [task("plan", "RUNNING"), task("a-driver", "RUNNING")]}},
        {"state": "SUCCEEDED", "run_details": {"task_details": [task("plan", "SUCCEEDED"), task("page", "SUCCEEDED")]}},
    ]
    assert submit(api, "--wait") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-4:] == [
        "  plan: running",
        "  plan: succeeded in 7 s",
        "  page: succeeded in 7 s",
        f"run {RUN}: succeeded",
    ]


def test_a_terminated_run_has_failed(api: Api) -> None:
    """Argo may leave it running, and Kubeflow then reports CANCELING forever."""
    api.states = [{"state": "RUNNING"}, {"state": "CANCELING"}]
    lines: list[str] = []
    assert not watch(Cluster(host=api.host).connect(), RUN, lines.append, 0.001)
    assert lines == [f"run {RUN}: canceling"]


def test_a_failed_run_names_the_task_and_its_reason(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    failed = task("plan", "FAILED", "exit code 2")
    api.states = [{"state": "FAILED", "run_details": {"task_details": [failed]}}]
    assert submit(api, "--wait") == 1
    assert "  plan: failed in 7 s: exit code 2" in capsys.readouterr().out


def test_the_projected_token_is_sent_along(api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setenv("KF_PIPELINES_SA_TOKEN_PATH", str(tmp_path / "token"))
    assert submit(api) == 0
    assert api.tokens == {"Bearer secret"}


@pytest.mark.parametrize(("status", "remedy"), [(401, "mount a token"), (403, "create runs"), (500, "port-forward")])
def test_a_server_that_refuses_is_reported_with_the_remedy(
    api: Api, status: int, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    api.refuse = status
    assert submit(api) == 2
    assert remedy in capsys.readouterr().err


TOKEN = "kubectl -n NAMESPACE create token ACCOUNT --audience pipelines.kubeflow.org > FILE"


def test_kubeflow_of_several_users_says_how_to_get_a_token(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The health check is open to everybody. The server refuses only the requests after it."""
    api.multi_user = True
    assert submit(api) == 2 and not api.runs
    said = capsys.readouterr().err
    assert "refuses the run (401): " in said and "there is no user identity header" in said
    assert TOKEN in said and "KF_PIPELINES_SA_TOKEN_PATH=FILE" in said
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setenv("KF_PIPELINES_SA_TOKEN_PATH", str(tmp_path / "token"))
    assert submit(api) == 0 and len(api.runs) == 1


def test_a_missing_permission_is_one_sentence(api: Api, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Kubeflow answers a refused upload with a status that says nothing and a stack trace."""
    api.may_create = False
    account = "system:serviceaccount:stillhouse:default"
    assert submit(api) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert f"refuses the run: {account} may not create runs in namespace" in said and "stillhouse-editor" in said
    client = Cluster(host=api.host).connect()
    for namespace, in_it in (("", "stillhouse"), ("shop", "shop")):
        with pytest.raises(InputError) as refused:
            upload(client, Compiled({"pipelineInfo": {"name": "refresh"}}, {}), namespace)
        [line] = str(refused.value).splitlines()
        missing = f"{account} may not create pipelines in namespace {in_it}: send"
        assert line.startswith(f"Kubeflow Pipelines refuses the pipeline: {missing}") and "stillhouse-editor" in line
        assert "github.com" not in line and "ResourceAttributes" not in line


def test_a_token_that_expires_while_the_run_is_watched_can_be_made_anew(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.multi_user, api.states = True, [{"state": "RUNNING"}, {"state": "SUCCEEDED"}]
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setenv("KF_PIPELINES_SA_TOKEN_PATH", str(tmp_path / "token"))
    client = Cluster(host=api.host).connect()
    api.valid_token = "another"
    lines: list[str] = []

    def log(line: str) -> None:
        lines.append(line)
        (tmp_path / "token").write_text("another\n")

    assert watch(client, RUN, log, 0.001)
    assert "the run continues, asking again: it requires a token" in lines[0] and TOKEN in lines[0]


@pytest.mark.parametrize(
    "words",
    [
        ["--parameter", "depth=0"],
        ["--parameter", "corpora=[scifact"],
        ["--image", "registry.example/stillhouse:latest"],
        ["--placements", "gpu", "--parameter", "accelerator_count=0"],
        ["--placements", "gpu", "--parameter", "accelerator_type=gpu"],
        ["--parameter", "accelerator_count=1"],
        ["--parameter", "depth"],
        ["--placements", "tpu"],
    ],
)
def test_invalid_parameters_are_refused_before_anything_is_sent(api: Api, words: list[str]) -> None:
    assert submit(api, *words) == 2
    assert not api.runs and not api.tokens, "refused before the server is asked"
