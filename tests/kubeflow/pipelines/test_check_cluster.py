"""A run's first task checks the cluster: what it receives, and that nothing can make it wait."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kubernetes_server import (
    NAMESPACE,
    node,
    serve,
    write_kubeconfig,
)

from stillhouse.kubeflow.cluster.wanted import read_wanted
from stillhouse.kubeflow.pipelines.admission import END, LOOK, wanted_of
from stillhouse.kubeflow.pipelines.catalog import RESULTS, Request
from stillhouse.kubeflow.pipelines.ir import Compiled, compile_small
from stillhouse.kubeflow.pipelines.placement import Placement, Secret
from stillhouse.kubeflow.pipelines.placement_table import find_table, read_table

Plain = dict[str, Any]
CASES = [("cpu", name) for name in RESULTS] + [("gpu", "train"), ("gpu", "zero-shot")]


def compiled(table: str, pipeline: str) -> Compiled:
    return compile_small(Request(pipeline, "simlm").build(find_table(table)))


@pytest.fixture(scope="module", params=CASES, ids=lambda case: "-".join(case))
def pipeline(request: pytest.FixtureRequest) -> Compiled:
    return compiled(*request.param)


def group_of(pipeline: Compiled) -> Plain:
    """Return all tasks except the final report."""
    [group] = [part for name, part in pipeline.spec["components"].items() if name.startswith("comp-exit-handler")]
    return {_known(name): _renamed(task) for name, task in group["dag"]["tasks"].items()}


def _known(name: str) -> str:
    """Return the name of a task. The check of a run's parameters also counts as the look at the cluster."""
    return LOOK if name == "check" else name


def _renamed(task: Plain) -> Plain:
    return task | {"dependentTasks": [_known(name) for name in task.get("dependentTasks", [])]}


def pod_of(pipeline: Compiled, component: str) -> tuple[Plain, Plain]:
    """Return a component's container, and the Kubernetes settings of its pod."""
    [label] = [
        part["executorLabel"]
        for name, part in pipeline.spec["components"].items()
        if _known(name.removeprefix("comp-")) == component
    ]
    pods = pipeline.platforms["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    return pipeline.spec["deploymentSpec"]["executors"][label]["container"], pods[label]


def before(tasks: Plain, name: str) -> set[str]:
    """Return every task that a task waits for, directly or indirectly."""
    found: set[str] = set()
    for other in tasks[name].get("dependentTasks", []):
        found |= {other} | before(tasks, other)
    return found


def test_every_task_waits_for_the_cluster_check(pipeline: Compiled) -> None:
    tasks = group_of(pipeline)
    assert not tasks[LOOK].get("dependentTasks")
    assert [name for name in tasks if name != LOOK and LOOK not in before(tasks, name)] == []


@pytest.mark.parametrize("component", [LOOK, END])
def test_optional_resources_never_block_the_first_and_last_task(pipeline: Compiled, component: str) -> None:
    container, pod = pod_of(pipeline, component)
    assert not pod.get("pvcMount") and "accelerator" not in container["resources"]
    assert not [label for label in pod["podMetadata"]["labels"] if label.startswith("kueue")]
    for secret in [*pod.get("secretAsEnv", []), *pod.get("secretAsVolume", [])]:
        assert secret["optional"] is True


def chosen_for_run(pipeline: Compiled, names: set[str]) -> None:
    """Check that the cluster check reads these parameters of the run."""
    given = group_of(pipeline)[LOOK]["inputs"]["parameters"]
    for name in names:
        assert given[f"pipelinechannel--{name}"] == {"componentInputParameter": f"pipelinechannel--{name}"}
        assert given[name]["runtimeValue"]["constant"] == f"{{{{$.inputs.parameters['pipelinechannel--{name}']}}}}"


def test_the_cluster_check_looks_for_what_the_pods_of_a_shipped_pipeline_use(pipeline: Compiled) -> None:
    """A run chooses only the accelerators. The names of claims and secrets are those of the table."""
    wanted = read_wanted(group_of(pipeline)[LOOK]["inputs"]["parameters"]["wanted"]["runtimeValue"]["constant"])
    chosen_for_run(pipeline, {"accelerator_type", "accelerator_count"} if wanted.accelerator_type else set())
    pods = pipeline.platforms["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    mounts = [mount for pod in pods.values() for mount in pod.get("pvcMount", [])]
    assert "work_claim" in wanted.claims
    assert set(wanted.claims.values()) == {mount["pvcNameParameter"]["runtimeValue"]["constant"] for mount in mounts}
    assert not wanted.secrets, "the shipped placements give optional ones to the few pods that use them"


def test_claims_and_secrets_chosen_for_a_run_reach_the_cluster_check(tmp_path: Path) -> None:
    """Their parameters are in the form of a table of one's own."""
    (tmp_path / "mine.yaml").write_text(
        "form: [work_claim, data_secret, hub_secret]\n"
        "kinds: {default: {claims: [{parameter: work_claim, name: mine, path: /volume}], secrets: ["
        "{parameter: data_secret, name: ours, path: /data}, {parameter: hub_secret, name: hub, keys: {t: HF_TOKEN}}]}}"
    )
    made = compile_small(Request("zero-shot").build(read_table(tmp_path / "mine.yaml")))
    chosen_for_run(made, {"work_claim", "data_secret", "hub_secret"})
    _, pod = pod_of(made, LOOK)
    for kind, name in (("secretAsVolume", "data_secret"), ("secretAsEnv", "hub_secret")):
        [secret] = pod[kind]
        assert secret["secretNameParameter"] == {"componentInputParameter": f"pipelinechannel--{name}"}


def test_the_cluster_check_gets_the_secrets_of_the_pods() -> None:
    """It gets the secrets of all pods and the mandatory ones, but not an optional secret of a few pods."""
    shared = Secret(parameter="data_secret", name="data", keys={"id": "ID"})
    more = Secret(parameter="data_secret", name="data", keys={"key": "KEY"}, optional=False)
    few = Secret(parameter="git_secret", name="git", path="/etc/git")
    must = Secret(parameter="hub_secret", name="hub", path="/etc/hub", optional=False)
    default = Placement(secrets=(shared,))
    asked = {"gate": default, "ingest": Placement(secrets=(shared, few)), "index": Placement(secrets=(more, must))}
    found = {secret.parameter: secret for secret in wanted_of(asked, default).secrets}
    assert found.keys() == {"data_secret", "hub_secret"}
    assert set(found["data_secret"].keys) == {"id", "key"} and not found["data_secret"].optional
    assert found["hub_secret"].path == "/look/hub_secret" and not found["hub_secret"].optional


def test_the_compiled_task_checks_the_cluster(tmp_path: Path) -> None:
    """Run the task's own command line with all inputs in the compiled pipeline, including those that kfp adds."""
    pipeline = compiled("gpu", "zero-shot")
    values = {"work_claim": "stillhouse-work", "data_secret": "mine", "accelerator_type": "nvidia.com/mig-1g.5gb"}
    values |= {"accelerator_count": "1", "image": "stillhouse:0.1.0"}
    inputs = {}
    for name, value in group_of(pipeline)[LOOK]["inputs"]["parameters"].items():
        chosen = values.get(name.removeprefix("pipelinechannel--"), "stillhouse:0.1.0")
        inputs[name] = value["runtimeValue"]["constant"] if name == "wanted" else chosen
    given = {"inputs": {"parameterValues": inputs}, "outputs": {"outputFile": str(tmp_path / "out.json")}}
    container, _ = pod_of(pipeline, LOOK)
    words = [*container["command"], *container["args"]]
    words = [json.dumps(given) if word == "{{$}}" else word for word in words]
    environment = os.environ | {"KUBECONFIG": str(tmp_path / "config"), "STILLHOUSE_POD_NAMESPACE": NAMESPACE}
    with serve() as cluster:
        cluster.objects = {"/api/v1/nodes": [node("small"), node("large", gpu="8")]}
        write_kubeconfig(tmp_path / "config", cluster.host)
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    assert "none of the cluster's 2 nodes has nvidia.com/mig-1g.5gb; they have nvidia.com/gpu" in done.stderr
    assert "Traceback" not in done.stderr
