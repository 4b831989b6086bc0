"""A step watches its nodes while the cluster removes them, does not answer, or refuses them."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_cluster import FakeCluster
from learning_step import begin, end_well, good_course, run, work

from stillhouse.errors import CrashElsewhere, InputError
from stillhouse.kubernetes.trainjob.cluster import Cluster


def test_a_job_that_is_deleted_ends_the_step(fake: FakeCluster, cluster: Cluster, tokens: Path, tmp_path: Path) -> None:
    fake.script = [lambda: begin(fake), lambda: fake.jobs.clear()]
    with pytest.raises(CrashElsewhere, match="was deleted while it ran; the retry starts it again"):
        run(cluster, tokens, tmp_path / "out")


def test_a_preempted_job_is_followed_until_it_comes_back(
    fake: FakeCluster, cluster: Cluster, logged: list[str], tokens: Path, tmp_path: Path
) -> None:
    """A queue takes the nodes away and provides others later. The new nodes are new pods with their own logs."""
    name = lambda: fake.only_job()["metadata"]["name"]  # noqa: E731

    def away() -> None:
        fake.set_condition(name(), "Suspended", "Preempted")
        for pod in [pod for pod in fake.pods if "-node-0-" in pod]:
            del fake.pods[pod]

    def back() -> None:
        fake.set_condition(name(), "Suspended", "Resumed", holds=False)
        fake.run_pods(name(), 2)
        fake.pods[f"{name()}-node-0-0-fghij"] = fake.pods.pop(f"{name()}-node-0-0-abcde")
        fake.pods[f"{name()}-node-0-0-fghij"]["metadata"]["name"] = f"{name()}-node-0-0-fghij"
        fake.say(f"{name()}-node-0-0-fghij", "resumed after step 40 of 100")

    before = lambda: fake.say(f"{name()}-node-0-0-abcde", "step 40")  # noqa: E731
    fake.script = [lambda: begin(fake), before, lambda: None, away, back, lambda: work(fake), lambda: end_well(fake)]
    run(cluster, tokens, tmp_path / "out")
    assert [line for line in logged if line.startswith("[node")] == [
        "[node 0] step 40",
        "[node 0] resumed after step 40 of 100",
    ]
    assert f"TrainJob {name()}: suspended, 0 of 2 nodes have started" in logged


@pytest.mark.parametrize("bad", [500, 503, 429, 410, "reset"])
def test_an_api_server_that_does_not_answer_is_asked_again(
    bad: int | str, fake: FakeCluster, cluster: Cluster, logged: list[str], tokens: Path, tmp_path: Path
) -> None:
    """Every third request fails, whatever it asks for."""
    fake.script = [step for part in good_course(fake) for step in (part, lambda: None)]
    fake.storm = bad
    assert run(cluster, tokens, tmp_path / "out").metrics == {"loss": 0.25}
    assert [verb for verb, _, _ in fake.calls].count("create") == 1
    assert [line for line in logged if line.startswith("[node")] == [
        "[node 0] step 1",
        "[node 0] step 2",
        "[node 1] ready",
    ]
    assert any("asking again" in line for line in logged)


def test_pauses_grow_without_ending_the_wait(fake: FakeCluster, cluster: Cluster, tokens: Path, tmp_path: Path) -> None:
    pauses: list[float] = []
    cluster.sleep = pauses.append
    fake.weather = [503] * 12
    fake.script = good_course(fake)
    run(cluster, tokens, tmp_path / "out")
    assert pauses[:12] == [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60]


REFUSALS = {
    403: "Give the run the account `stillhouse-steps`",
    404: "install Kubeflow Trainer",
    422: r"was refused: spec\.trainer is odd",
}


@pytest.mark.parametrize("status", REFUSALS)
def test_what_the_cluster_refuses_is_reported_with_the_remedy(
    status: int, fake: FakeCluster, cluster: Cluster, tokens: Path, tmp_path: Path
) -> None:
    fake.refusal = (status, "spec.trainer is odd")
    with pytest.raises(InputError, match=REFUSALS[status]):
        run(cluster, tokens, tmp_path / "out")


def test_why_nodes_do_not_begin_is_reported(
    fake: FakeCluster, cluster: Cluster, logged: list[str], tokens: Path, tmp_path: Path
) -> None:
    name = lambda: fake.only_job()["metadata"]["name"]  # noqa: E731

    def warn() -> None:
        about = {"kind": "Job", "name": f"{name()}-node-0"}
        other = {"kind": "Job", "name": "somebody-else"}
        words = (
            "exceeded quota: stillhouse, requested: nvidia.com/gpu=8, used: nvidia.com/gpu=4, limited: nvidia.com/gpu=8"
        )
        fake.events = [
            {"involvedObject": about, "reason": "FailedCreate", "message": words},
            {"involvedObject": other, "reason": "FailedCreate", "message": "no concern of ours"},
        ]

    fake.script = [lambda: None, warn, lambda: None, *good_course(fake)[2:]]
    run(cluster, tokens, tmp_path / "out")
    [line] = [line for line in logged if "exceeded quota" in line]
    assert f"Job {name()}-node-0: FailedCreate: exceeded quota: stillhouse" in line and "somebody" not in line
    assert "raise the ResourceQuota" in line, "and what to do about it"


def test_nodes_with_another_volume_are_detected(
    fake: FakeCluster, cluster: Cluster, tokens: Path, tmp_path: Path
) -> None:
    fake.script = [lambda: begin(fake), lambda: end_well(fake)]
    with pytest.raises(InputError, match="ReadWriteMany"):
        run(cluster, tokens, tmp_path / "out")
