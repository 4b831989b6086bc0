"""Choices at the start of a run reach the pods: counts and addresses that a process reads, images, secrets."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from stillhouse.kubeflow.pipelines.catalog import Request
from stillhouse.kubeflow.pipelines.ir import Compiled, compile_small
from stillhouse.kubeflow.pipelines.placement_table import FOLDER, find_table
from stillhouse.pipeline.recipes import shipped_files

DIGEST = "sha256:" + "1" * 64


@dataclasses.dataclass
class Task:
    """A task of a compiled pipeline, with its container and the Kubernetes settings of its pod."""

    name: str
    inputs: set[str]
    container: dict[str, Any]
    pod: dict[str, Any]

    @property
    def variables(self) -> dict[str, str]:
        return {entry["name"]: entry["value"] for entry in self.container.get("env", [])}

    def secrets(self) -> dict[str, str]:
        """Return the secrets of the pod, each with its mount path or its variables."""
        found = {}
        for kind, place in (("secretAsVolume", "mountPath"), ("secretAsEnv", "")):
            for secret in self.pod.get(kind, []):
                assert secret["optional"], "a secret that is not there costs no pod"
                name = secret["secretNameParameter"]["runtimeValue"]["constant"]
                found[name] = secret[place] if place else ",".join(key["envVar"] for key in secret["keyToEnv"])
        return found


def tasks(compiled: Compiled) -> Iterator[Task]:
    pods = compiled.platforms["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
    for component in [compiled.spec["root"], *compiled.spec["components"].values()]:
        for task in component.get("dag", {}).get("tasks", {}).values():
            label = compiled.spec["components"][task["componentRef"]["name"]].get("executorLabel")
            if label:
                inputs = {name.removeprefix("pipelinechannel--") for name in task["inputs"].get("parameters", {})}
                container = compiled.spec["deploymentSpec"]["executors"][label]["container"]
                yield Task(task["taskInfo"]["name"], inputs, container, pods.get(label, {}))


KEYS = {
    "stillhouse-ssh": "/scratch/.ssh",
    "stillhouse-gcs": "/etc/stillhouse-gcs",
    "stillhouse-git": "/etc/stillhouse-git",
}
DATA = {"stillhouse-data": "AWS_ACCESS_KEY_ID,AWS_SECRET_ACCESS_KEY,AWS_ENDPOINT_URL"}


@pytest.mark.parametrize("name", shipped_files(FOLDER))
def test_pods_that_reach_git_and_remotes_have_the_keys_and_no_others_do(name: str) -> None:
    made = list(tasks(compile_small(Request("refresh", "simlm").build(find_table(name)))))
    with_keys = [task.name for task in made if task.secrets().keys() & KEYS.keys()]
    assert sorted(with_keys) == ["check_parameters", "corpus", "plan", "promote"]
    for task in made:
        if task.name != "report_end":
            assert task.secrets() == (KEYS | DATA if task.name in with_keys else {}), task.name
