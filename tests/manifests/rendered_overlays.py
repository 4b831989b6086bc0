"""What the tests of manifests share: overlays rendered by kustomize, and programs that a machine may lack."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
SERVING = ("kserve", "serving")
"""Overlays of a search service alone, which go beside one of the others."""
EVERY_OVERLAY = sorted(folder.name for folder in (MANIFESTS / "overlays").iterdir())
OVERLAYS = [name for name in EVERY_OVERLAY if name not in SERVING]
"""Overlays with what trains."""
Resource = dict[str, Any]


def program(name: str) -> str:
    """The path of a program, or a skip that says how to get it."""
    found = shutil.which(name)
    if found is None:
        remedy = "its own site has it" if name == "kubectl" else "`make test-tools` installs it on Debian"
        pytest.skip(f"{name} is not installed; {remedy}")
    return found


@cache
def kustomize() -> tuple[str, ...]:
    """The command that renders a folder; a kubectl from before 1.22 knows no components and will not do."""
    if shutil.which("kustomize"):
        return ("kustomize", "build")
    said = subprocess.run(
        [program("kubectl"), "version", "--client", "-o", "json"], capture_output=True, text=True, check=True
    )
    version = re.match(r"v(\d+)\.(\d+)", json.loads(said.stdout)["clientVersion"]["gitVersion"])
    assert version is not None
    if (int(version[1]), int(version[2])) < (1, 22):
        pytest.skip(f"kubectl is {version[0]}; its kustomize knows no components, 1.22 or later does")
    return ("kubectl", "kustomize")


class Go(yaml.CSafeLoader):
    """Reads numbers as Kubernetes does: PyYAML takes 2e-05 for text, as YAML 1.1 has no such number."""


Go.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+"), list("-+0123456789"))


@cache
def rendered(overlay: str) -> tuple[Resource, ...]:
    """Every resource of an overlay."""
    return render(MANIFESTS / "overlays" / overlay)


def with_component(folder: Path, overlay: str, *components: str, **more: Any) -> tuple[Resource, ...]:
    """Every resource of a custom overlay in `folder`: one of ours with components, and `more` unchanged."""
    there = os.path.relpath(MANIFESTS, folder.resolve())
    content = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{there}/overlays/{overlay}"],
        "components": [f"{there}/components/{name}" for name in components],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(content | more), encoding="utf-8")
    return render(folder)


def render(folder: Path) -> tuple[Resource, ...]:
    """Every resource that kustomize makes of a folder."""
    assert (MANIFESTS / "pipelines").is_dir(), "the pipelines are not compiled; run `make compile`"
    made = subprocess.run([*kustomize(), str(folder)], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert "deprecated" not in made.stderr.lower(), made.stderr
    return tuple(yaml.load_all(made.stdout, Loader=Go))


def rule_groups() -> dict[str, Any]:
    """The groups of the PrometheusRule, as a Prometheus without an operator reads them."""
    text = (MANIFESTS / "components" / "monitoring" / "rules.yaml").read_text(encoding="utf-8")
    return {"groups": yaml.safe_load(text)["spec"]["groups"]}


POD_FIELDS = {
    "automountServiceAccountToken",
    "containers",
    "enableServiceLinks",
    "serviceAccountName",
    "volumes",
}
"""Fields of a pod that an InferenceService's predictor has, as Knative takes them without features that are off."""


def pod_specs(resources: tuple[Resource, ...]) -> dict[str, Resource]:
    """The specs of all pods that the resources make, by kind and name."""
    found = {}
    for resource in resources:
        name, spec = f"{resource['kind']}/{resource['metadata']['name']}", resource.get("spec", {})
        if resource["kind"] == "CronJob":
            found[name] = spec["jobTemplate"]["spec"]["template"]["spec"]
        elif resource["kind"] in ("Deployment", "Job", "StatefulSet", "DaemonSet"):
            found[name] = spec["template"]["spec"]
        elif resource["kind"] == "TrainingRuntime":
            for job in spec["template"]["spec"]["replicatedJobs"]:
                found[f"{name}/{job['name']}"] = job["template"]["spec"]["template"]["spec"]
        elif resource["kind"] == "InferenceService":
            found[name] = {field: spec["predictor"][field] for field in spec["predictor"].keys() & POD_FIELDS}
        elif resource["kind"] == "RayCluster":
            for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
                found[f"{name}/{group.get('groupName', 'head')}"] = group["template"]["spec"]
    return found
