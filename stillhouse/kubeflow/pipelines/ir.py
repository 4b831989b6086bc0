"""A pipeline's intermediate representation (IR): compiles it, shrinks it, names it by its content, and writes it.

Kubernetes stores a pipeline in one object of at most about 1.5 MB, and Argo stores a run in one of 1 MiB
(`pipelines/workflow_size.py`). This module drops what nothing reads there: requests and limits in their former format,
and a second input for each parameter in a pod's description.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from kfp import compiler
from kfp.dsl.base_component import BaseComponent

from stillhouse.core.artifacts import digest_json
from stillhouse.kubeflow.pipelines.workflow_size import Plain, pods_of, refuse_large, workflow_size

API_VERSION = "pipelines.kubeflow.org/v2beta1"


@dataclass(frozen=True)
class Compiled:
    """What Kubeflow receives: the pipeline and its Kubernetes settings."""

    spec: Plain
    platforms: Plain

    @property
    def name(self) -> str:
        return str(self.spec["pipelineInfo"]["name"])

    @property
    def version(self) -> str:
        """A name derived from the content: versions are immutable, so changed content is a new version."""
        return f"{self.name}-{digest_json([self.spec, self.platforms])[:12]}"

    @property
    def description(self) -> str:
        """What the pipeline does, and its parameters."""
        return str(self.spec["pipelineInfo"].get("description", ""))

    @property
    def summary(self) -> str:
        """What the pipeline does, in one line for a list of pipelines."""
        return self.description.partition("\n")[0]

    def as_ir(self) -> str:
        """The format that the user interface and kfp's client read."""
        return dump([self.spec, self.platforms] if self.platforms else [self.spec])

    def as_resources(self) -> str:
        """The format for `kubectl apply`, for an API server that stores pipelines as Kubernetes resources."""
        spec = {"displayName": self.version, "pipelineName": self.name, "pipelineSpec": self.spec}
        if self.platforms:
            spec["platformSpec"] = self.platforms
        return dump(
            [
                _resource("Pipeline", self.name, {"displayName": self.name, "description": self.summary}),
                _resource("PipelineVersion", self.version, spec | {"description": self.description}),
            ]
        )


def compile_small(pipeline: BaseComponent) -> Compiled:
    """Compiles a pipeline without what nothing reads. Raises `InputError` if a run would be too large."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pipeline.yaml"
        compiler.Compiler().compile(pipeline, str(path))
        spec, *others = yaml.load_all(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    compiled = Compiled(spec, others[0] if others else {})
    leave_out_former_fields(compiled)
    leave_out_second_inputs(compiled)
    refuse_large(compiled.name, workflow_size(compiled.spec, compiled.platforms))
    return compiled


def leave_out_former_fields(compiled: Compiled) -> None:
    """Drops what kfp writes again for old backends: numbers of requests and limits, names of secrets and claims.

    KFP 2.17 reads these only if the newer field is missing, such as `resourceCpuLimit` or `pvcNameParameter`.
    """
    for executor in compiled.spec["deploymentSpec"]["executors"].values():
        resources = executor.get("container", {}).get("resources", {})
        for former in (resources, resources.get("accelerator", {})):
            for name in [name for name in former if f"resource{name[0].upper()}{name[1:]}" in former]:
                del former[name]
    for pod in pods_of(compiled.platforms).values():
        for secret in (*pod.get("secretAsEnv", ()), *pod.get("secretAsVolume", ())):
            if "secretNameParameter" in secret:
                secret.pop("secretName", None)
        for claim in pod.get("pvcMount", ()):
            if "pvcNameParameter" in claim:
                for former in ("constant", "componentInputParameter", "taskOutputParameter"):
                    claim.pop(former, None)


def leave_out_second_inputs(compiled: Compiled) -> None:
    """Drops the inputs in which kfp gives a task its image and accelerator once more.

    The description of the pod names the pipeline's parameters, which are inputs too, and KFP fills it from those.
    """
    for component in (compiled.spec["root"], *compiled.spec["components"].values()):
        for task in component.get("dag", {}).get("tasks", {}).values():
            known = compiled.spec["components"][task["componentRef"]["name"]].get("inputDefinitions", {})
            given = task.get("inputs", {}).get("parameters", {})
            for name in given.keys() - known.get("parameters", {}).keys():
                if "runtimeValue" in given[name]:
                    del given[name]


def dump(documents: list[Plain]) -> str:
    return str(yaml.dump_all(documents, Dumper=_PlainDumper, sort_keys=True, allow_unicode=True, width=120))


def _resource(kind: str, name: str, spec: Plain) -> Plain:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


class _PlainDumper(yaml.SafeDumper):
    """Writes equal parts in full, since not every YAML reader supports references."""

    def ignore_aliases(self, data: Any) -> bool:
        return True
