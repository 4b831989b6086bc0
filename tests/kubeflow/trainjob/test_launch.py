"""A step that runs on nodes of a fake cluster: how its job is named, starts, is found again, and ends."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from fake_cluster import FakeCluster
from learning_step import SETTINGS, begin, end_badly, good_course, run

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.errors import CrashElsewhere, InputError
from stillhouse.kubeflow.kubernetes_api import Unseen
from stillhouse.kubeflow.trainjob.cluster import Cluster
from stillhouse.kubeflow.trainjob.manifest import job_name

ROLES = Path(__file__).resolve().parents[3] / "manifests" / "components" / "trainer" / "roles.yaml"


def test_a_job_is_started_and_followed_and_its_outputs_collected(
    fake: FakeCluster, cluster: Cluster, logged: list[str], tokens: Path, tmp_path: Path
) -> None:
    fake.script = good_course(fake)
    report = run(cluster, tokens, tmp_path / "out")
    assert report.metrics == {"loss": 0.25} and report.facts == {"steps": 6}
    assert report.summary == "learned, on 2 nodes", "what the task's page says"
    for name in ("encoder", "curves"):
        assert read_manifest(tmp_path / "out" / name).facts == {"steps": 6}
    job = fake.only_job()
    assert job["metadata"]["ownerReferences"] == [
        {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "train-xyz", "uid": "w-1"}
    ]
    name = job["metadata"]["name"]
    assert [line for line in logged if line.startswith("[node")] == [
        "[node 0] step 1",
        "[node 0] step 2",
        "[node 1] ready",
    ]
    assert logged.index("[node 0] step 1") < logged.index(f"TrainJob {name}: complete"), "logged while it ran"
    assert f"TrainJob {name}: suspended" in logged
    assert not list((tmp_path / "volume").glob("trainjobs/*")), "its folder goes when the outputs are here"


def test_a_retry_follows_the_job_that_it_finds(
    fake: FakeCluster, cluster: Cluster, logged: list[str], tokens: Path, tmp_path: Path
) -> None:
    """The pod vanishes while the job runs: the job continues, and the next try follows it to the end."""

    course = good_course(fake)
    fake.script = course[:4]
    fake.most_looks = 5
    with pytest.raises(Unseen):
        run(cluster, tokens, tmp_path / "out")
    [name] = fake.jobs
    fake.most_looks = 500
    logged.clear()
    fake.script = course[4:]
    assert run(cluster, tokens, tmp_path / "out").metrics == {"loss": 0.25}
    assert [call for call in fake.calls if call[0] in ("create", "delete")] == [
        ("create", "trainer.kubeflow.org", "trainjobs")
    ]
    assert logged[0] == f"TrainJob {name}: an earlier try of this step started it; following it"


def test_a_retry_starts_a_job_again_whose_results_were_taken(
    fake: FakeCluster, cluster: Cluster, tokens: Path, tmp_path: Path
) -> None:
    """The pod is killed while Kubeflow stores what its stage made: the retry finds a job that is complete and empty."""
    fake.script = good_course(fake)
    run(cluster, tokens, tmp_path / "out")
    fake.script = [lambda: None, *good_course(fake)]
    assert run(cluster, tokens, tmp_path / "retry").metrics == {"loss": 0.25}
    assert fake.only_job()["metadata"]["uid"] == "uid-2"


def test_a_pod_that_has_to_end_takes_its_job_with_it(
    fake: FakeCluster, cluster: Cluster, logged: list[str], tokens: Path, tmp_path: Path
) -> None:
    """Its run may be over; if it is not, the retry starts the job again, from the checkpoint."""
    fake.script = [*good_course(fake)[:4], lambda: os.kill(os.getpid(), signal.SIGTERM)]
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as end:
        run(cluster, tokens, tmp_path / "out")
    assert end.value.code == 143 and signal.getsignal(signal.SIGTERM) == before
    assert "deletionTimestamp" in fake.only_job()["metadata"] and "deleted TrainJob" in logged[-1]
    fake.script += good_course(fake)
    assert run(cluster, tokens, tmp_path / "out").metrics == {"loss": 0.25}
    assert fake.only_job()["metadata"]["uid"] == "uid-2"


def test_a_retry_after_a_failure_starts_a_new_job_once_the_old_is_gone(
    fake: FakeCluster, cluster: Cluster, tokens: Path, tmp_path: Path
) -> None:
    fake.script = [lambda: begin(fake), lambda: end_badly(fake)]
    with pytest.raises(CrashElsewhere, match="FailedJobs: jobset failed due to one or more"):
        run(cluster, tokens, tmp_path / "out")
    assert fake.only_job()["metadata"]["uid"] == "uid-1", "it stays for people to look at"
    fake.script = [lambda: None, *good_course(fake)]
    assert run(cluster, tokens, tmp_path / "out").metrics == {"loss": 0.25}
    assert fake.only_job()["metadata"]["uid"] == "uid-2"
    assert [verb for verb, _, _ in fake.calls if verb in ("create", "delete")] == ["create", "delete", "create"]


def test_the_sentence_of_a_node_is_reported_though_its_pod_is_removed_at_once(
    fake: FakeCluster, cluster: Cluster, tokens: Path, tmp_path: Path
) -> None:
    def speak() -> None:
        fake.say(f"{fake.only_job()['metadata']['name']}-node-0-1-abcde", "stillhouse: give --objective simlm")

    fake.script = [lambda: begin(fake), speak, lambda: end_badly(fake)]
    with pytest.raises(CrashElsewhere, match="failed: give --objective simlm; the lines"):
        run(cluster, tokens, tmp_path / "out")


def test_what_the_cluster_warns_of_is_shown_until_a_node_has_started(
    fake: FakeCluster, cluster: Cluster, logged: list[str], tokens: Path, tmp_path: Path
) -> None:
    def warn() -> None:
        name = f"{fake.only_job()['metadata']['name']}-node-0-0-abcde"
        about = {"kind": "Pod", "name": name}
        fake.events = [
            {"involvedObject": about, "reason": "FailedScheduling", "message": "Insufficient nvidia.com/gpu"}
        ]
        fake.events += [{"involvedObject": {"kind": "Pod", "name": "another"}, "reason": "x", "message": "x"}]

    fake.script = [warn, *good_course(fake)]
    run(cluster, tokens, tmp_path / "out")
    [line] = [line for line in logged if "Insufficient" in line]
    assert line.endswith("-node-0-0-abcde: FailedScheduling: Insufficient nvidia.com/gpu")


@pytest.mark.parametrize("bad", [503, 410, "reset"])
def test_an_api_server_that_does_not_answer_ends_nothing(
    bad: int | str, fake: FakeCluster, cluster: Cluster, logged: list[str], tokens: Path, tmp_path: Path
) -> None:
    def storm() -> None:
        fake.weather = [bad] * 9

    fake.script = [storm, *good_course(fake)]
    assert run(cluster, tokens, tmp_path / "out").metrics == {"loss": 0.25}
    assert len([line for line in logged if "the nodes continue; trying again" in line]) == 1


REFUSALS = {
    (404, "the server could not find the requested resource"): "install Kubeflow Trainer 2.3",
    (422, "numNodes is wrong"): "was refused: numNodes is wrong",
    (403, "trainjobs is forbidden"): "trainjobs is forbidden. Give the run the account",
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_job_that_the_cluster_refuses_is_reported_with_the_remedy(
    refusal: tuple[int, str], fake: FakeCluster, cluster: Cluster, tokens: Path, tmp_path: Path
) -> None:
    fake.refusal = refusal
    with pytest.raises(InputError, match=REFUSALS[refusal]):
        run(cluster, tokens, tmp_path / "out")


def test_the_name_is_that_of_the_task_of_the_run() -> None:
    """A retry has the same job name. Another task, run or work (its settings and inputs) has another name."""
    first = ("learn", "run-1", "retriever_1", "work")
    others = [("learn", "run-2", *first[2:]), (*first[:2], "retriever_2", "work"), (*first[:3], "other work")]
    names = [job_name(*given) for given in (first, first, *others)]
    assert names[0] == names[1] and len(set(names)) == 4


def test_the_role_gives_the_rights_that_are_used_and_no_more(
    fake: FakeCluster, cluster: Cluster, tokens: Path, tmp_path: Path
) -> None:
    fake.script = [lambda: begin(fake), lambda: end_badly(fake)]
    with pytest.raises(CrashElsewhere):
        run(cluster, tokens, tmp_path / "out")
    fake.script = [lambda: None, *good_course(fake)]
    run(cluster, tokens, tmp_path / "out")
    fake.jobs.clear()
    fake.script = [lambda: os.kill(os.getpid(), signal.SIGTERM)]
    with pytest.raises(SystemExit):
        run(cluster, tokens, tmp_path / "other", replace(SETTINGS, task="retriever_2"))
    [role] = [one for one in yaml.safe_load_all(ROLES.read_text()) if one["kind"] == "Role"]
    given = {
        (verb, group, resource)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert set(fake.calls) == given
