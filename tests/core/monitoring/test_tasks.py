"""Tasks that are not steps, or whose step runs elsewhere, push how they ended and what they released."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gateway_stand_in import Gateway

from stillhouse import cli
from stillhouse.core.artifacts import write_manifest
from stillhouse.core.errors import CrashElsewhere, InputError, ValidationFailed
from stillhouse.core.monitoring.watch import watch
from stillhouse.kubeflow.pods import run_control
from stillhouse.kubeflow.pods.refresh import ASKED, run_check, run_release
from stillhouse.kubeflow.pods.run_control import TEXT
from stillhouse.kubeflow.pods.stage import PARAMS, RECIPE, step_in_pod
from stillhouse.pipeline.graph import SIMLM_STEPS
from stillhouse.pipeline.graph_steps import stages_of
from stillhouse.pipeline.steps.spec import Report
from stillhouse.releases.promotion import ALREADY, REFUSED, RELEASED, Outcome
from stillhouse.releases.refresh.plan import Level, Parameters, Plan
from stillhouse.releases.refresh.run import Refreshed
from stillhouse.releases.tags import Overtaken

ACCEPTED, SAID_RELEASED = "stillhouse_promotion_accepted", "stillhouse_promotion_released"


def check(folder: Path, queries: str) -> None:
    """The first task of a run of `train`."""
    values: dict[str, Any] = {f"plan_{stage.name}": str(folder / stage.name) for stage in stages_of(SIMLM_STEPS)}
    values |= {TEXT: "{}", RECIPE: SimpleNamespace(path=str(folder / "recipe")), "run_id": "run-1"}
    run_control.check_run("train", values | {"queries": queries})


FAILING: dict[str, tuple[Callable[[Path], Any], str]] = {
    "check": (lambda folder: check(folder, "none at all"), "bad_input"),
    "check-refresh": (lambda folder: run_check(vars(Parameters(releases=str(folder / "none.git")))), "bad_input"),
}


def reasons(samples: dict[tuple[str, str], float]) -> list[str]:
    return [own for (name, own), value in samples.items() if name == "stillhouse_step_failure" and value]


@pytest.mark.parametrize("task", FAILING)
def test_a_small_task_that_fails_pushes_its_reason(
    task: str, gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STILLHOUSE_TASK", task)
    write_manifest(tmp_path, "validate", {}, {}, {"passed": False})
    call, reason = FAILING[task]
    with pytest.raises(SystemExit):
        call(tmp_path)
    [(method, path, samples)] = gateway.pushes
    assert (method, path) == ("POST", f"/metrics/job/stillhouse/pipeline/refresh/step/{task}")
    assert samples["stillhouse_step_success", ""] == 0 and reasons(samples) == [reason]


def test_a_small_task_that_succeeds_clears_its_failure(gateway: Gateway, tmp_path: Path) -> None:
    check(tmp_path, "auto")
    [(_, path, samples)] = gateway.pushes
    assert path.endswith("/step/check")
    assert samples["stillhouse_step_success", ""] == 1 and reasons(samples) == []
    assert ("stillhouse_step_failure", "crash") in samples


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (InputError("this cluster has no TrainJobs"), ["bad_input"]),
        (CrashElsewhere("node 1 was killed"), None),  # the node has pushed the reason, or the reason is unknown
        (RuntimeError("broken"), ["crash"]),
    ],
)
def test_a_step_s_pod_pushes_the_failure_of_its_nodes(
    error: Exception, expected: list[str] | None, gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compute(*_: Any) -> Report:
        raise error

    monkeypatch.setattr("stillhouse.kubeflow.pods.in_pod.execute", compute)
    [step] = [step for step in SIMLM_STEPS if step.name == "pretraining"]
    with pytest.raises(type(error)):
        step_in_pod(step, step.spec.config(), tmp_path)
    [(method, path, samples)] = gateway.pushes
    assert (method, path.rpartition("/")[2]) == ("POST", "pretrain")
    assert samples["stillhouse_step_success", ""] == 0
    logged = reasons(samples) if any(name == "stillhouse_step_failure" for name, _ in samples) else None
    assert logged == expected


def test_the_pod_pushes_nothing_for_a_step_that_succeeded(gateway: Gateway) -> None:
    with watch("pretrain", print, task=True) as watched:
        watched.reported = True
    assert gateway.pushes == []


def released(folder: Path, monkeypatch: pytest.MonkeyPatch, outcome: Outcome | Exception) -> None:
    """Run the component of the promotion with a release that has this outcome."""

    def release(*_: Any) -> Outcome:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr("stillhouse.releases.refresh.on_cluster.release_refresh", release)
    monkeypatch.setenv("STILLHOUSE_TASK", "promote")
    (folder / "planned").mkdir()
    known = {"level": "index", "champion": "v1.0.0", "reason": "one article"}
    (folder / "planned" / "refresh.json").write_text(json.dumps(known))
    own = {name: SimpleNamespace(path=str(folder / name)) for name in (RECIPE, "planned", "refreshed", "summary")}
    own["metrics"] = SimpleNamespace(path=str(folder / "metrics"), log_metric=lambda name, value: None)
    (folder / RECIPE).mkdir()
    (folder / RECIPE / ASKED).write_text(json.dumps(vars(Parameters(releases="r.git"))))
    (folder / RECIPE / PARAMS).write_text("{}")
    run_release(own)


@pytest.mark.parametrize(
    ("kind", "in_use", "expected"), [(RELEASED, True, 1), (ALREADY, True, 1), (ALREADY, False, 0), (REFUSED, False, 0)]
)
def test_a_promotion_pushes_what_is_released(
    kind: str, in_use: bool, expected: float, gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released(tmp_path, monkeypatch, Outcome(kind, None, "so it is", in_use))
    [(method, path, samples)] = gateway.pushes
    assert (method, path.rpartition("/")[2]) == ("POST", "promote"), (
        "POST leaves the verdict of `compare-release` there"
    )
    assert samples[SAID_RELEASED, ""] == expected and samples["stillhouse_step_success", ""] == 1
    assert (ACCEPTED, "") not in samples


@pytest.mark.parametrize("error", [Overtaken("v2.0.0 became champion meanwhile"), InputError("the push was refused")])
def test_an_accepted_but_unreleased_challenger_is_not_shown_as_released(
    error: Exception, gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SystemExit):
        released(tmp_path, monkeypatch, error)
    [(_, _, samples)] = gateway.pushes
    assert (SAID_RELEASED, "") not in samples and reasons(samples) == ["bad_input"]


@pytest.mark.parametrize("in_use", [True, False])
def test_commands_that_release_push_the_outcome(
    in_use: bool, gateway: Gateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = Outcome(RELEASED if in_use else REFUSED, None, "so it is", in_use)
    monkeypatch.setattr("stillhouse.releases.refresh.run.promote_whole_run", lambda *given, **named: outcome)
    refreshed = Refreshed(Plan(Level.INDEX, "one article"), outcome)
    monkeypatch.setattr("stillhouse.releases.refresh.run.refresh", lambda *given: refreshed)
    cli.main(["release", "promote", "--folder", str(tmp_path)])
    cli.main(["refresh", "r.git", "--folder", str(tmp_path / "refreshed")])
    assert [path.rpartition("/")[2] for _, path, _ in gateway.pushes] == ["promote", "refresh"]
    assert [samples[SAID_RELEASED, ""] for _, _, samples in gateway.pushes] == [in_use, in_use]


def end(folder: Path, state: str) -> dict[str, float]:
    """End a run, and return what Kubeflow shows of it."""
    logged: dict[str, float] = {}
    artifacts = {
        name: SimpleNamespace(path=folder / name, log_metric=logged.__setitem__) for name in ("summary", "metrics")
    }
    status = SimpleNamespace(state=state, error_message="")
    run_control.end_run({"pipeline": "refresh", "run": "articles-1", "status": status} | artifacts)
    assert json.loads((folder / "metrics").read_text()) == logged
    return logged


@pytest.mark.parametrize(("state", "expected"), [("COMPLETE", 1), ("SUCCEEDED", 1), ("CACHED", 1), ("FAILED", 0)])
def test_the_end_of_a_run_is_pushed_as_one_group_per_pipeline(
    state: str, expected: float, gateway: Gateway, tmp_path: Path
) -> None:
    """For a success, Kubeflow's backend reports COMPLETE, and its local runner SUCCEEDED."""
    assert end(tmp_path, state) == {"succeeded": expected}
    page = (tmp_path / "summary").read_text()
    assert page.startswith(f"## refresh: {'succeeded' if expected else 'failed'}\n")
    assert ("first failed task" in page) != bool(expected)
    [(method, path, samples)] = gateway.pushes
    assert (method, path) == ("PUT", "/metrics/job/stillhouse/pipeline/refresh")
    assert samples["stillhouse_run_success", ""] == expected
    assert samples.keys() == {("stillhouse_run_success", ""), ("stillhouse_run_finished_timestamp_seconds", "")}


@pytest.mark.parametrize("state", ["RUNNING", "UNKNOWN", "RUNTIME_STATE_UNSPECIFIED", "SOMETHING_NEW", ""])
def test_a_run_whose_end_kubeflow_leaves_open_is_neither_a_success_nor_a_failure(
    state: str, gateway: Gateway, tmp_path: Path
) -> None:
    """The group is replaced, so an alert for the previous run does not apply to this one."""
    assert end(tmp_path, state) == {}
    page = (tmp_path / "summary").read_text()
    assert page.startswith("## refresh: unknown\n") and "first failed task" not in page
    [(method, _, samples)] = gateway.pushes
    assert method == "PUT" and samples.keys() == {("stillhouse_run_finished_timestamp_seconds", "")}


@pytest.mark.parametrize("state", ["CANCELLED", "CANCELED", "CANCELING"])
def test_a_run_that_a_user_cancelled_is_not_a_failure(state: str, gateway: Gateway, tmp_path: Path) -> None:
    end(tmp_path, state)
    assert gateway.pushes == []
    page = (tmp_path / "summary").read_text()
    assert page.startswith("## refresh: canceled\n") and "first failed task" not in page


def test_a_task_that_fails_for_its_own_reason_ends_with_it(gateway: Gateway) -> None:
    with pytest.raises(ValidationFailed), watch("gate", print, task=True):
        raise ValidationFailed("the corpus did not pass")
    assert reasons(gateway.pushes[0][2]) == ["validation"]
