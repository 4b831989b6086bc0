"""Shared by the tests of the manifests: overlays rendered by kustomize, and programs that may be missing."""

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
"""Overlays with only a search service, which are installed beside one of the others."""
EVERY_OVERLAY = sorted(folder.name for folder in (MANIFESTS / "overlays").iterdir())
OVERLAYS = [name for name in EVERY_OVERLAY if name not in SERVING]
"""Overlays for training."""
Resource = dict[str, Any]


def program(name: str) -> str:
    """Return the path of a program, or skip the test and say how to install it."""
    found = shutil.which(name)
    if found is None:
        remedy = "its own site has it" if name == "kubectl" else "`make test-tools` installs it on Debian"
        pytest.skip(f"{name} is not installed; {remedy}")
    return found


@cache
def kustomize() -> tuple[str, ...]:
    """Return the command that renders a folder, or skip the test: kubectl before 1.22 does not support components."""
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
    """Reads numbers as Kubernetes does. PyYAML reads 2e-05 as text, because YAML 1.1 requires a decimal point."""


Go.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+"), list("-+0123456789"))


@cache
def rendered(overlay: str) -> tuple[Resource, ...]:
    """Every resource of an overlay."""
    return render(MANIFESTS / "overlays" / overlay)


def with_component(folder: Path, overlay: str, *components: str, **more: Any) -> tuple[Resource, ...]:
    """Return every resource of a custom overlay in `folder`: one of ours, with components and the fields of `more`."""
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
    """Return every resource that kustomize renders from a folder."""
    assert (MANIFESTS / "pipelines").is_dir(), "the pipelines are not compiled; run `make compile`"
    made = subprocess.run([*kustomize(), str(folder)], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    assert "deprecated" not in made.stderr.lower(), made.stderr
    return tuple(yaml.load_all(made.stdout, Loader=Go))


def rule_groups() -> dict[str, Any]:
    """The groups of the PrometheusRule, as a Prometheus without an operator reads them."""
    text = (MANIFESTS / "components" / "monitoring" / "rules.yaml").read_text(encoding="utf-8")
    return {"groups": yaml.safe_load(text)["spec"]["groups"]}


POD_FIELDS = {"automountServiceAccountToken", "containers", "enableServiceLinks", "serviceAccountName", "volumes"}
"""Fields of a pod in an InferenceService's predictor, limited to those that Knative accepts by default."""


def pod_specs(resources: tuple[Resource, ...]) -> dict[str, Resource]:
    """Return the specs of all pods that the resources create, by kind and name."""
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
