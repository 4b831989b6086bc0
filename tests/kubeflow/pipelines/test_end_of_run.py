"""The last task of a run, with the input from Kubeflow's backend, through kfp's own executor."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kfp.dsl.executor import Executor
from kubernetes_server import NAMESPACE, WORKFLOWS, Kubernetes, serve, write_kubeconfig

from stillhouse.kubeflow.pipelines.control import report_end


def ended(folder: Path, **status: Any) -> dict[str, Any]:
    """Run the last task, and return the title of its page and what it logged for Kubeflow.

    The backend of 2.17.0 marshals `PipelineTaskFinalStatus` with an `error` that is always empty, and leaves out
    fields that have their default.
    """
    outputs = {
        name: {"artifacts": [{"name": name, "type": {"schemaTitle": f"system.{kind}"}, "uri": str(folder / name)}]}
        for name, kind in (("summary", "Markdown"), ("metrics", "Metrics"))
    }
    given = {"pipelineTaskName": "exit-handler-1", "pipelineJobResourceName": "train-xyz", "error": {}} | status
    values = {"pipeline": "train", "run": "mine", "status": given}
    Executor(
        executor_input={
            "inputs": {"parameterValues": values},
            "outputs": {"artifacts": outputs, "outputFile": str(folder / "executor_output.json")},
        },
        function_to_execute=report_end().python_func,
    ).execute()
    made = json.loads((folder / "executor_output.json").read_text())
    logged = made["artifacts"]["metrics"]["artifacts"][0]["metadata"]
    return {"title": (folder / "summary").read_text().splitlines()[0], "logged": logged}


@pytest.mark.parametrize(
    ("state", "title", "logged"),
    [
        ("COMPLETE", "succeeded", {"succeeded": 1.0}),
        ("FAILED", "failed", {"succeeded": 0.0}),
        ("RUNNING", "unknown", {}),
    ],
)
def test_how_a_run_ended_by_the_state_of_the_backend(
    state: str, title: str, logged: dict[str, float], tmp_path: Path
) -> None:
    assert ended(tmp_path, state=state) == {"title": f"## train: {title}", "logged": logged}


@pytest.fixture
def kubernetes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Kubernetes]:
    """Start a cluster that has the workflow of the run, and point the last task's pod to it."""
    with serve() as known:
        config = write_kubeconfig(tmp_path / "config", known.host)
        monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(config))
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        (tmp_path / "namespace").write_text(NAMESPACE)
        monkeypatch.setattr("stillhouse.core.context.NAMESPACE", tmp_path / "namespace")
        metadata = {"name": "train-xyz", "labels": {}}
        known.objects[WORKFLOWS] = [{"metadata": metadata, "spec": {}, "status": {"phase": "Running"}}]
        yield known


def test_a_terminated_run_is_canceled(kubernetes: Kubernetes, tmp_path: Path) -> None:
    """Kubeflow terminates a run by a deadline of zero seconds in its workflow, and its tasks' state stays RUNNING."""
    kubernetes.objects[WORKFLOWS][0]["spec"] = {"activeDeadlineSeconds": 0}
    assert ended(tmp_path, state="RUNNING") == {"title": "## train: canceled", "logged": {"succeeded": 0.0}}
    assert kubernetes.calls == [("get", "argoproj.io", "workflows")], "the right that manifests/base gives"


@pytest.mark.parametrize("state", ["COMPLETE", "FAILED"])
def test_a_state_that_says_how_a_run_ended_needs_no_look_at_its_workflow(
    state: str, kubernetes: Kubernetes, tmp_path: Path
) -> None:
    """The state of a refresh is COMPLETE although conditions skipped its other levels."""
    ended(tmp_path, state=state)
    assert not kubernetes.calls


@pytest.mark.parametrize("namespace", [NAMESPACE, ""])
def test_a_workflow_that_cannot_be_read_leaves_the_end_unknown(
    namespace: str,
    kubernetes: Kubernetes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not namespace:
        monkeypatch.setattr("stillhouse.core.context.NAMESPACE", tmp_path / "none")
    kubernetes.refused = {"workflows"}
    assert ended(tmp_path, state="RUNNING")["title"] == "## train: unknown"
    said = capsys.readouterr().out
    assert ("workflows is forbidden" if namespace else "which names the namespace of a pod") in said
