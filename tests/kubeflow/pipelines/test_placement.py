# No `from __future__ import annotations` here: kfp reads the types of the signatures as they stand.
"""Placements: what is refused, what tables contain, and the result in the compiled pipeline."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import yaml
from kfp import compiler, dsl

from stillhouse.core.errors import InputError
from stillhouse.kubeflow.pipelines.place import place
from stillhouse.kubeflow.pipelines.placement_table import FOLDER, OTHERS, find_table
from stillhouse.kubeflow.pipelines.stage_component import written
from stillhouse.kubeflow.placement import Accelerator, Claim, Placement, Secret, refuse_image
from stillhouse.kubeflow.pods.process import HAS_GPU
from stillhouse.pipeline.recipes import shipped_files
from stillhouse.pipeline.steps.registry import steps

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "cpu": ({"cpu": "1.5"}, "whole cores, or thousandths"),
    "cpu limit": ({"cpu": "4", "cpu_limit": "500m"}, "cpu_limit is below cpu"),
    "memory": ({"memory": "8G"}, "a number of Mi, Gi or Ti"),
    "memory limit": ({"memory": "8Gi", "memory_limit": "512Mi"}, "memory_limit is below memory"),
    "shared memory": ({"memory": "8Gi", "shared_memory": "8Gi"}, "raise memory_limit above 8Gi"),
    "scratch": ({"scratch": ""}, "scratch"),
    "relative": ({"scratch_path": "scratch"}, "absolute path"),
    "retries": ({"retries": 11}, "0 to 10"),
    "timeout": ({"timeout_hours": 0}, "above 0"),
    "root": ({"user": 0}, "superuser"),
    "two at one path": (
        {"claims": (Claim(role="work_claim", name="work", path="/scratch"),)},
        "two volumes at /scratch",
    ),
}
WRONG_PARTS: dict[str, tuple[type, dict[str, Any], str]] = {
    "none of it": (Accelerator, {"count": 0}, "leave out the accelerator"),
    "both": (Secret, {"role": "data_secret", "name": "s", "keys": {"a": "A"}, "path": "/s"}, "either keys"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_placement_is_refused(case: str) -> None:
    values, message = WRONG[case]
    with pytest.raises(InputError, match=message):
        Placement(**values)


@pytest.mark.parametrize("case", WRONG_PARTS)
def test_an_invalid_part_of_a_placement_is_refused(case: str) -> None:
    cls, values, message = WRONG_PARTS[case]
    with pytest.raises(InputError, match=message):
        cls(**values)


@pytest.mark.parametrize("image", ["registry.example/stillhouse:latest", "a/b", "a/b@sha256:12", "", "a b"])
def test_an_image_by_tag_is_refused(image: str) -> None:
    with pytest.raises(InputError, match=r"digest|DIGEST"):
        refuse_image(image)


BAD_TABLES = {
    "no YAML": ("a: [", "is not a YAML file"),
    "no default": ("kinds: {big: {}}", "has no 'default'"),
    "part": ("kind: {}", "did you mean 'kinds'"),
    "step": ("kinds: {default: {}}\nsteps: {pretrian: default}", "did you mean 'pretrain'"),
    "kind": ("kinds: {default: {}}\nsteps: {pretrain: big}", "has the kind 'big'"),
    "setting": ("kinds: {default: {memry: 1Gi}}", "did you mean 'memory'"),
    "type": ("kinds: {default: {cpu: 2}}", r"kinds: default: cpu must be text, not 2; put it in quotes"),
    "nested": ("kinds: {default: {accelerator: {kind: a}}}", "accelerator: unknown setting 'kind'"),
    "missing": ("kinds: {default: {claims: [{name: a, path: /a}]}}", r"claims\[0\] lacks role"),
    "range": ("kinds: {default: {retries: 99}}", "kinds: default: 99 retries"),
    "shards": ("kinds: {default: {}}\nshards: 0", "from 1 to 99"),
    "two defaults": (
        "kinds: {default: {accelerator: {type: a/a}}, b: {accelerator: {type: b/b}}}",
        "another the Accelerator.*b/b",
    ),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_a_wrong_table_is_refused_with_its_place(case: str, tmp_path: Path) -> None:
    text, message = BAD_TABLES[case]
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        find_table(str(path))


@pytest.mark.parametrize("name", shipped_files(FOLDER))
def test_every_step_has_a_placement(name: str) -> None:
    table = find_table(name)
    light = {"fetch-model", "compare-release"}
    assert set(table.steps) == {*steps(), *OTHERS} - light, "a light step has the default by being left out"


def compiled(placement: Placement, **parameters: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the container and the Kubernetes part of a task with this placement, inside a loop and an exit handler."""

    work = written("work", ["text: str"], "stillhouse.kubeflow.pods.stage", "run_stage")

    @dsl.component(base_image="x", install_kfp_package=False)
    def end(status: dsl.PipelineTaskFinalStatus):
        pass

    @dsl.pipeline(name="p")
    def pipeline(image: str = "i", accelerator_type: str = "t", accelerator_count: str = "1"):
        given = {"image": image, "accelerator_type": accelerator_type, "accelerator_count": accelerator_count}
        with dsl.ExitHandler(end()), dsl.ParallelFor(["a", "b"]) as item:
            place(work(text=item), placement, "the-work", given)

    path = Path(parameters["folder"]) / "ir.yaml"
    compiler.Compiler().compile(pipeline, str(path))
    spec, platform = yaml.safe_load_all(path.read_text())
    kubernetes = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-work"]
    return spec["deploymentSpec"]["executors"]["exec-work"]["container"], kubernetes | {"spec": spec}


def with_a_secret() -> Placement:
    """The placement of a training, and a secret with variables."""
    gpu = find_table("gpu")
    return dataclasses.replace(gpu.of("pretrain"), secrets=gpu.of("ingest").secrets[:1])


def channel(name: str) -> str:
    return f"{{{{$.inputs.parameters['pipelinechannel--{name}']}}}}"


def test_everything_of_a_placement_reaches_the_pod(tmp_path: Path) -> None:
    container, pod = compiled(with_a_secret(), folder=tmp_path)
    assert container["image"] == channel("image")
    assert container["resources"]["accelerator"] == {
        "resourceType": channel("accelerator_type"),
        "resourceCount": channel("accelerator_count"),
    }
    assert container["resources"]["resourceMemoryLimit"] == "96Gi"
    asked = {entry["name"]: entry["value"] for entry in container["env"]}
    assert asked[HAS_GPU] == "1"
    mounts = {mount["mountPath"]: mount for mount in pod["emptyDirMounts"]}
    assert mounts["/dev/shm"]["medium"] == "Memory" and mounts["/dev/shm"]["sizeLimit"] == "16Gi"
    assert mounts["/scratch"]["sizeLimit"] == "100Gi" and "medium" not in mounts["/scratch"]
    [claim] = pod["pvcMount"]
    assert claim["mountPath"] == "/volume"
    assert claim["pvcNameParameter"] == {"runtimeValue": {"constant": "stillhouse-shared"}}
    [secret] = pod["secretAsEnv"]
    assert secret["optional"] and secret["secretNameParameter"] == {"runtimeValue": {"constant": "stillhouse-data"}}
    assert pod["podMetadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "stillhouse", "stillhouse.io/task": "the-work"}
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert pod["securityContext"] == {"runAsUser": "10001", "runAsGroup": "10001", "runAsNonRoot": True}
    assert pod["activeDeadlineSeconds"] == str(240 * 3600)
    run = {one["name"]: one["fieldPath"] for one in pod["fieldPathAsEnv"]}
    assert run == {"STILLHOUSE_RUN": "metadata.labels['pipeline/runid']"}
    assert pod["podMetadata"]["annotations"] == {"prometheus.io/scrape": "true", "prometheus.io/port": "9464"}
