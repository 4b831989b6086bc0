"""The compiled pipelines as resources of Kubernetes: `python -m pipelines.resources` renders them for kustomize.

Kubeflow Pipelines in Kubernetes-native mode reads pipelines from the cluster. A version cannot be changed, so its name
holds a digest of its content: the same pipeline is the same version wherever it is rendered, and a changed one stands
beside those that earlier runs name.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import yaml

from stillhouse.errors import InputError

MANIFESTS = Path(__file__).resolve().parent.parent / "manifests"
COMPILED = MANIFESTS / "pipelines"
"""The compiled pipelines, one IR file each: its specification and, as a second document, the platform's."""
COMPONENT = MANIFESTS / "components" / "pipelines"
API_VERSION = "pipelines.kubeflow.org/v2beta1"
DIGITS = 12
LARGEST = 1_000_000
"""Bytes of a resource that the API server still takes: etcd's limit is 1.5 MiB, and Argo's copy is larger."""

Resource = dict[str, Any]


def resources(ir: Path) -> list[Resource]:
    """The `Pipeline` and the `PipelineVersion` of one IR file. Raises `InputError` for what is no IR, or too large."""
    documents = [document for document in yaml.safe_load_all(ir.read_text(encoding="utf-8")) if document]
    if not documents or "pipelineInfo" not in documents[0] or len(documents) > 2:
        raise InputError(f"{ir} is no compiled pipeline; compile it with `stillhouse pipeline compile`")
    name = documents[0]["pipelineInfo"]["name"]
    description = documents[0]["pipelineInfo"].get("description", "")
    version: Resource = {"description": description, "pipelineName": name, "pipelineSpec": documents[0]}
    if len(documents) == 2:
        version["platformSpec"] = documents[1]
    made = [_resource("Pipeline", name, {"description": description}), _resource("PipelineVersion", "", version)]
    digest = content_digest(documents)
    made[1]["metadata"]["name"] = made[1]["spec"]["displayName"] = f"{name}-{digest}"
    size = len(json.dumps(made[1]))
    if size > LARGEST:
        raise InputError(f"{ir}: {size} bytes are more than the cluster takes ({LARGEST}); divide the pipeline")
    return made


def content_digest(documents: list[Any]) -> str:
    """The digest of what a pipeline says, however its file is laid out."""
    content = json.dumps(documents, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(content.encode()).hexdigest()[:DIGITS]


def _resource(kind: str, name: str, spec: Resource) -> Resource:
    if kind == "Pipeline":
        spec = {"displayName": name} | spec
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def render(compiled: Path = COMPILED) -> dict[str, str]:
    """The files of the kustomize component by their names: one a pipeline, and the list of them."""
    files = {}
    for ir in sorted(compiled.glob("*.yaml")):
        made = resources(ir)
        files[f"{ir.stem}.yaml"] = HEADER + yaml.safe_dump_all(made, sort_keys=False, allow_unicode=True, width=120)
    listed = "".join(f"  - {name}\n" for name in files)
    files["kustomization.yaml"] = KUSTOMIZATION + (f"resources:\n{listed}" if listed else "resources: []\n")
    return files


HEADER = "# Rendered by `python -m pipelines.resources` from the compiled pipeline of the same name; change that one.\n"
KUSTOMIZATION = """\
# The compiled pipelines, for Kubeflow Pipelines in Kubernetes-native mode; `make render` writes this list.
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
"""


def write(folder: Path = COMPONENT, compiled: Path = COMPILED) -> list[Path]:
    """Makes `folder` hold the rendered files and no others."""
    files = render(compiled)
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.yaml"):
        if path.name not in files:
            path.unlink()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in files]


if __name__ == "__main__":
    for path in write():
        print(path.relative_to(MANIFESTS.parent))
