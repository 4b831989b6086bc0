"""`submit --wait` says why pods do not start or fail, with real clients and local Kubeflow and Kubernetes servers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubeflow_server import IMAGE, RUN, Api
from kubeflow_server import serve as serve_kubeflow
from kubernetes_server import HERE, NAMESPACE, Kubernetes, serve, write_kubeconfig

from stillhouse import cli

Plain = dict[str, Any]
RUNNING: Plain = {"state": "RUNNING", "run_details": {"task_details": []}}
ENDED: Plain = {"state": "FAILED", "run_details": {"task_details": []}}
NO_GPU = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are available: 3 No victims."


def pod(name: str, task: str, run: str = RUN, **status: Any) -> Plain:
    labels = {"pipeline/runid": run, "stillhouse.io/task": task}
    spec: Plain = {"containers": [{"name": "main"}]}
    return {"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels}, "spec": spec} | {
        "status": {"phase": "Pending"} | status
    }


def unschedulable(name: str, task: str, words: str = NO_GPU, run: str = RUN) -> Plain:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words}
    return pod(name, task, run, conditions=[condition])


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Api]:
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "config"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with serve_kubeflow(monkeypatch, tmp_path) as known:
        known.states = [RUNNING, RUNNING, ENDED]
        yield known


@pytest.fixture
def kubernetes(api: Api, tmp_path: Path) -> Iterator[Kubernetes]:
    """Start a cluster, and write its kubeconfig."""
    with serve() as known:
        write_kubeconfig(tmp_path / "config", known.host)
        known.objects = {f"{HERE}/pods": [], f"{HERE}/events": []}
        yield known


def wait(api: Api, *words: str) -> int:
    """Submit a run in the namespace of the tests, wait for it, and return the exit code."""
    asked = ["--host", api.host, "--image", IMAGE, "--every", "0.01", "--wait", "--namespace", NAMESPACE]
    return cli.main(["pipeline", "submit", "zero-shot", *asked, *words])


def logged(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines about pods."""
    lines = capsys.readouterr().out.splitlines()
    [begun] = [number for number, line in enumerate(lines) if line.startswith(f"run {RUN}, version")]
    assert lines[-1] == f"run {RUN}: failed"
    return lines[begun + 1 : -1]


def test_what_kubernetes_says_is_shown_once_for_all_pods(
    api: Api, kubernetes: Kubernetes, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every look at the cluster finds the same waiting pods. The events of pods that run, or of other runs, are not
    shown."""
    kubernetes.objects[f"{HERE}/pods"] = [
        unschedulable("p1", "encode"),
        unschedulable("p2", "encode"),
        unschedulable("other", "of another run", "0/3 nodes are available: 3 Insufficient memory.", run="another"),
        pod("p3", "mine"),
        pod("p4", "index", phase="Running"),
    ]
    kubernetes.objects[f"{HERE}/events"] = [
        {"metadata": {"labels": {}}, "involvedObject": {"name": name}, "reason": "Failed", "message": words}
        for name, words in (("p3", 'secret "keys" not found'), ("p4", "over"), ("other", "another"))
    ]
    assert wait(api) == 1
    assert logged(capsys) == [f"  encode waits: {NO_GPU}", '  mine waits: Failed: secret "keys" not found']


def test_the_message_of_a_failed_step_is_shown_once(
    api: Api, kubernetes: Kubernetes, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two failed pods logged the same message. Kubeflow itself only reports their exit codes."""
    kubernetes.objects[f"{HERE}/pods"] = [pod("p1", "check-cluster", phase="Failed"), pod("p2", "x", phase="Failed")]
    said = "noise\nstillhouse: this cluster cannot run it:\n  - no claim: create it\nmain failed\n"
    kubernetes.logs = {"p1": said, "p2": said}
    assert wait(api) == 1
    assert logged(capsys) == ["  check-cluster says: this cluster cannot run it:", "    - no claim: create it"]
    assert len(kubernetes.logs_read) == 2, "each log is read once, however often it is looked"


def test_a_pod_that_said_nothing_has_failed_in_the_words_of_kubernetes(
    api: Api, kubernetes: Kubernetes, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = [{"name": "main", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]
    kubernetes.objects[f"{HERE}/pods"] = [pod("p1", "index", phase="Failed", containerStatuses=ended)]
    kubernetes.objects[f"{HERE}/pods"].append(pod("p2", "bm25", phase="Failed", reason="Evicted", message="low memory"))
    assert wait(api) == 1
    assert logged(capsys) == [
        "  index says: main ended with exit code 137 (OOMKilled)",
        "  bm25 says: Evicted; low memory",
    ]


def test_what_cannot_be_read_is_said_once(api: Api, kubernetes: Kubernetes, capsys: pytest.CaptureFixture[str]) -> None:
    kubernetes.refused = {"pods"}
    assert wait(api) == 1
    [line] = logged(capsys)
    assert line.startswith(
        f"  cannot read the pods of namespace {NAMESPACE}: Kubernetes answers 403: pods is forbidden"
    )


OUTCOMES = {
    "refused": ("release-refresh", "refused: v1.0.0 stays: RR@10 falls by 0.1", 4),
    "refused before": ("plan-refresh", "refused: this corpus was refused before; use --again to retry it", 4),
    "released": ("release-refresh", "released: no worse than v1.0.0", 0),
    "nothing": ("plan-refresh", "nothing: the corpus is the released one", 0),
}


def refresh(api: Api) -> int:
    """Submit a refresh that succeeds, wait for it, and return the exit code. Past 1 MiB, no task is listed any more."""
    api.states = [RUNNING, {"state": "SUCCEEDED", "run_details": {"task_details": []}}]
    words = ["--host", api.host, "--image", IMAGE, "--every", "0.01", "--wait", "--namespace", NAMESPACE]
    return cli.main(["pipeline", "submit", "refresh", "--parameter", "releases=r.git", "--recipe", "micro", *words])


@pytest.mark.parametrize("case", OUTCOMES)
def test_a_refresh_ends_with_the_sentence_and_the_exit_code_of_the_command(
    case: str, api: Api, kubernetes: Kubernetes, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its run succeeds in Kubeflow even if the challenger was refused."""
    task, outcome, code = OUTCOMES[case]
    kubernetes.objects[f"{HERE}/pods"] = [pod("p1", "plan-refresh", phase="Succeeded")]
    kubernetes.logs = {"p1": "[refresh] index\n", "p2": f"[refresh] page\nstillhouse: {outcome}\nuploaded\n"}
    kubernetes.objects[f"{HERE}/pods"].append(pod("p2", task, phase="Succeeded"))
    assert refresh(api) == code
    assert capsys.readouterr().out.splitlines()[-2:] == [f"  {task} says: {outcome}", f"run {RUN}: succeeded"]
