"""A step that trains on nodes, and what its nodes do on the fake cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fake_cluster import FakeCluster

from stillhouse.core.artifacts import whole_folder, write_manifest
from stillhouse.core.config import setting
from stillhouse.kubeflow.placement import Placement
from stillhouse.kubeflow.trainjob.cluster import Cluster
from stillhouse.kubeflow.trainjob.launch import execute_on_nodes
from stillhouse.kubeflow.trainjob.settings import NodeSettings
from stillhouse.pipeline.steps.spec import Port, Report, Step

SETTINGS = NodeSettings(task="retriever_1", placement=Placement(nodes=2, cpu="1", cpu_limit="2", memory_limit="4Gi"))


@dataclass(frozen=True, kw_only=True)
class Config:
    rate: float = setting(0.5, "a setting")


def never(*given: Any) -> Report:
    raise AssertionError("the step's own pod computes nothing")


STEP = Step(
    "learn",
    "learns",
    Config,
    inputs=(Port("tokens", "what is learned from"), Port("extra", "more of it", optional=True)),
    outputs=(Port("encoder", "the model", kind="model"), Port("curves", "the losses")),
    run=never,
    parallel=True,
)


def flags(job: Mapping[str, Any]) -> dict[str, str]:
    """The flags of the command that a job runs on every node."""
    words = job["spec"]["trainer"]["command"]
    return dict(word[2:].split("=", 1) for word in words if word.startswith("--") and "=" in word)


def work(fake: FakeCluster) -> None:
    """Do the work of the nodes: read the inputs, write the outputs and finally the report."""
    given = flags(fake.only_job())
    assert (Path(given["tokens"]) / "tokens.bin").read_bytes() == b"0123"
    for name in ("encoder", "curves"):
        with whole_folder(Path(given[name])) as staging:
            (staging / "model.bin").write_bytes(given["rate"].encode())
            write_manifest(staging, "learn", {"rate": 0.5}, {}, {"steps": 6})
    Path(given["report"]).write_text(json.dumps({"summary": "learned", "metrics": {"loss": 0.25}, "html": ""}))


def begin(fake: FakeCluster) -> None:
    fake.run_pods(fake.only_job()["metadata"]["name"], 2)


def end_well(fake: FakeCluster) -> None:
    for name in list(fake.pods):
        if "-node-0-" in name:
            fake.end_pod(name)
    fake.set_condition(fake.only_job()["metadata"]["name"], "Complete", "AllJobsCompleted")


def end_badly(fake: FakeCluster) -> None:
    """End badly as under JobSet: by the time the job is failed, the failed node's pod and its log are gone."""
    job = fake.only_job()["metadata"]["name"]
    fake.remove_pod(f"{job}-node-0-1-abcde")
    fake.set_condition(job, "Failed", "FailedJobs", "jobset failed due to one or more job failures")


def run(cluster: Cluster, tokens: Path, folder: Path, settings: NodeSettings = SETTINGS) -> Report:
    outputs = {"encoder": folder / "encoder", "curves": folder / "curves"}
    return execute_on_nodes(STEP, Config(), {"tokens": tokens}, outputs, settings)


def good_course(fake: FakeCluster) -> list[Callable[[], None]]:
    """Return the events of a successful job, one for each look of the step: queued, running, working, complete."""
    name = lambda number: f"{fake.only_job()['metadata']['name']}-node-0-{number}-abcde"  # noqa: E731
    return [
        lambda: fake.set_condition(fake.only_job()["metadata"]["name"], "Suspended", "Suspended"),
        lambda: fake.set_condition(fake.only_job()["metadata"]["name"], "Suspended", "Resumed", holds=False),
        lambda: begin(fake),
        lambda: fake.say(name(0), "step 1"),
        lambda: fake.say(name(0), "step 2"),
        lambda: fake.say(name(1), "ready"),
        lambda: work(fake),
        lambda: end_well(fake),
    ]
