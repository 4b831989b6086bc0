"""The command of a real job, run by two local processes with the environment that Trainer gives to nodes.

They connect on loopback with gloo, on the CPU, and share a folder as nodes share a volume.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_cluster import FakeCluster
from ports import free_port
from safetensors.torch import load_file

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.config import build
from stillhouse.core.errors import CrashElsewhere
from stillhouse.kubeflow.placement import Placement
from stillhouse.kubeflow.trainjob.cluster import Cluster
from stillhouse.kubeflow.trainjob.launch import execute_on_nodes
from stillhouse.kubeflow.trainjob.settings import NodeSettings
from stillhouse.pipeline.steps.registry import find_step

pytestmark = pytest.mark.slow

PRETRAINING = {"objective": "mlm", "gradient_accumulation_steps": 2, "max_steps": 6, "batch_size": 8, "eval_steps": 2}
PRETRAINING |= {"max_length": 32, "heldout_fraction": 0.25, "learning_rate": 0.03, "epochs": 100.0, "precision": "fp32"}
ENVIRONMENT = {"STILLHOUSE_DEVICE": "cpu", "STILLHOUSE_WORK": "/volume"}
SETTINGS = NodeSettings(
    task="pretraining",
    placement=Placement(
        nodes=2, cpu="1", cpu_limit="2", memory_limit="4Gi", timeout_hours=0.2, environment=ENVIRONMENT
    ),
)
ONE_NODE = replace(SETTINGS, placement=replace(SETTINGS.placement, nodes=1))


@dataclass
class LocalNodes:
    """Plays Trainer and kubelet: starts a process for each node of the only job, and updates the fake cluster."""

    fake: FakeCluster
    processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def look(self) -> None:
        """Start the nodes at the first look of the step. Once all have ended, report their logs and results."""
        job = self.fake.only_job()
        name = job["metadata"]["name"]
        if not self.processes:
            self.fake.run_pods(name, job["spec"]["trainer"]["numNodes"])
            port = free_port()
            for number in range(job["spec"]["trainer"]["numNodes"]):
                self.processes[f"{name}-node-0-{number}-abcde"] = start_node(job, number, port)
        codes = {pod: process.poll() for pod, process in self.processes.items()}
        if None in codes.values():
            self.fake.script.append(self.look)
            return
        for pod, process in self.processes.items():
            for line in process.communicate()[0].splitlines():
                self.fake.say(pod, line)
        if any(codes.values()):
            self.fake.script.append(lambda: self.fail(name))
            return
        for pod in self.processes:
            self.fake.end_pod(pod)
        self.fake.set_condition(name, "Complete", "Ended")

    def fail(self, name: str) -> None:
        """Fail the job as JobSet does: remove the pods, with their logs and exit codes."""
        for pod in self.processes:
            self.fake.remove_pod(pod)
        self.fake.set_condition(name, "Failed", "FailedJobs", "jobset failed due to one or more job failures")

    def stop(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()


def start_node(job: dict[str, Any], number: int, port: int) -> subprocess.Popen[str]:
    """Start the process of one node, with the variables that Trainer's plugin for PyTorch sets."""
    trainer = job["spec"]["trainer"]
    given = {
        "PET_NNODES": str(trainer["numNodes"]),
        "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
        "PET_NODE_RANK": str(number),
        "PET_MASTER_ADDR": "127.0.0.1",
        "PET_MASTER_PORT": str(port),
    }
    own = {entry["name"]: entry["value"] for entry in trainer["env"]}
    passed = {name: value for name, value in os.environ.items() if not name.startswith("STILLHOUSE_")}
    python = Path(sys.executable).parent
    return subprocess.Popen(
        trainer["command"],
        env=passed | own | given | {"OMP_NUM_THREADS": "1", "PATH": f"{python}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture
def nodes(fake: FakeCluster, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalNodes]:
    monkeypatch.setenv("STILLHOUSE_DEVICE", "cpu")
    cluster.sleep = lambda seconds: time.sleep(0.3)
    fake.most_looks = 10_000
    nodes = LocalNodes(fake)
    fake.script = [nodes.look]
    yield nodes
    nodes.stop()


def test_two_nodes_train_the_same_model_as_one_process(
    nodes: LocalNodes,
    cluster: Cluster,
    logged: list[str],
    run_step: Callable[..., dict[str, Path]],
    small_corpus: Path,
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    tokens = run_step("tokenize", {"corpus": small_corpus, "tokenizer": tiny_model})["tokens"]
    inputs = {"tokens": tokens, "init": tiny_model}
    alone = run_step("pretrain", inputs, into="alone", **PRETRAINING)
    step = find_step("pretrain")
    both = {name: tmp_path / "both" / name for name in alone}
    report = execute_on_nodes(step, build(step.config, PRETRAINING, "test"), inputs, both, SETTINGS)
    weights = [load_file(folder["encoder"] / "model.safetensors") for folder in (alone, both)]
    for name, value in weights[0].items():
        if not name.endswith("key.bias"):  # its gradient is only rounding error, which AdamW scales up
            torch.testing.assert_close(
                weights[1][name], value, rtol=0, atol=2e-5, msg=lambda text, name=name: name + text
            )
    manifests = [read_manifest(folder["encoder"]) for folder in (alone, both)]
    assert manifests[0].inputs == manifests[1].inputs and manifests[0].config == manifests[1].config
    assert report.facts["steps"] == 6
    assert len([line for line in logged if "[pretrain] read" in line]) == 1, "one process of all alone writes and logs"
    work = [path.name for path in Path(os.environ["STILLHOUSE_WORK"]).iterdir() if path.name.startswith("pretrain-")]
    assert work == [], "the checkpoints go when the outputs are whole"


@pytest.mark.long
def test_a_refusal_on_a_node_is_reported_by_the_launcher(
    nodes: LocalNodes,
    cluster: Cluster,
    logged: list[str],
    run_step: Callable[..., dict[str, Path]],
    small_corpus: Path,
    tiny_model: Path,
    tmp_path: Path,
) -> None:
    tokens = run_step("tokenize", {"corpus": small_corpus, "tokenizer": tiny_model})["tokens"]
    step = find_step("pretrain")
    config = build(step.config, PRETRAINING | {"objective": "ict", "gradient_accumulation_steps": 1}, "test")
    outputs = {name: tmp_path / name for name in ("encoder", "curves")}
    with pytest.raises(CrashElsewhere, match="it needs passages of two sentences"):
        execute_on_nodes(step, config, {"tokens": tokens, "init": tiny_model}, outputs, SETTINGS)
    assert not (tmp_path / "encoder").exists()
