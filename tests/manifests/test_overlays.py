"""Every overlay renders, every resource has the fields of its kind, and everything it names exists."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from rendered_overlays import EVERY_OVERLAY, MANIFESTS, OVERLAYS, SERVING, Go, Resource, pod_specs, rendered

CUSTOM = yaml.safe_load((Path(__file__).parent / "custom_resources.yaml").read_text(encoding="utf-8"))
KUBERNETES = ("1.30", "1.37")
"""The oldest and the newest Kubernetes version that the manifests support."""


def key(resource: Resource) -> str:
    return f"{resource['apiVersion']}/{resource['kind']}"


def is_custom(resource: Resource) -> bool:
    return "." in resource["apiVersion"].split("/")[0] and not resource["apiVersion"].split("/")[0].endswith(".k8s.io")


def is_kueue(resource: Resource) -> bool:
    return bool(resource["apiVersion"].startswith("kueue.x-k8s.io/"))


def check_custom(resource: Resource) -> None:
    """Raise an error if a custom resource does not have the fields of its kind."""
    kind = key(resource)
    assert {"apiVersion", "kind", "metadata"} <= set(resource)
    if kind.startswith("trainer.kubeflow.org/"):
        import kubeflow_trainer_api.models as models

        own = {"TrainingRuntime": models.TrainerV1alpha1TrainingRuntime, "TrainJob": models.TrainerV1alpha1TrainJob}
        model = own[resource["kind"]]
        read: Any = model.from_dict(resource)
        unknown = _lost(resource, read.to_dict())
        assert not unknown, f"{kind} has no fields {unknown}"
        return
    own = {name: value for name, value in resource.items() if name not in ("apiVersion", "kind", "metadata")}
    if kind in CUSTOM["whole"]:
        schema, content = CUSTOM["whole"][kind], own
    else:
        assert own.keys() <= {"spec"}, f"{kind} has no fields {own.keys()}"
        schema, content = CUSTOM["kinds"][kind], own.get("spec", {})
    jsonschema.validate(content, schema | {"definitions": CUSTOM["definitions"]})


def _lost(given: Any, kept: Any, where: str = "") -> list[str]:
    """Return the fields that a model dropped because it does not know them. An empty object counts as kept."""
    if isinstance(given, dict):
        kept = kept or {}
        missing = [f"{where}.{name}" for name in given if name not in kept and given[name] != {}]
        return missing + [
            path for name in given if name in kept for path in _lost(given[name], kept[name], f"{where}.{name}")
        ]
    if isinstance(given, list):
        return [path for number, one in enumerate(given) for path in _lost(one, kept[number], f"{where}[{number}]")]
    return []


@pytest.mark.parametrize("overlay", EVERY_OVERLAY)
@pytest.mark.parametrize("version", KUBERNETES)
def test_built_in_kinds_have_the_fields_of_kubernetes(overlay: str, version: str) -> None:
    checked = 0
    for resource in rendered(overlay):
        if not is_custom(resource) and not is_kueue(resource):
            kubernetes_validate.validate(resource, version, strict=True)
            checked += 1
    assert checked > (1 if overlay in SERVING else 5)


@pytest.mark.parametrize("overlay", EVERY_OVERLAY)
def test_custom_resources_have_the_fields_of_their_kinds(overlay: str) -> None:
    for resource in rendered(overlay):
        if is_custom(resource) or is_kueue(resource):
            check_custom(resource)


@pytest.mark.parametrize("overlay", EVERY_OVERLAY)
def test_resources_are_unique_and_in_their_namespace(overlay: str) -> None:
    cluster_wide = {"Namespace", "ResourceFlavor", "ClusterQueue", "WorkloadPriorityClass"}
    cluster_wide |= {"ClusterRole", "ClusterRoleBinding"}
    resources = rendered(overlay)
    names = [(key(one), one["metadata"]["name"]) for one in resources]
    assert len(set(names)) == len(names)
    namespaces = {one["metadata"].get("namespace") for one in resources if one["kind"] not in cluster_wide}
    assert len(namespaces) == 1
    own = [one["metadata"]["name"] for one in resources if one["kind"] == "Namespace"]
    assert own in ([], [*namespaces])


@pytest.mark.parametrize("overlay", EVERY_OVERLAY)
def test_everything_that_a_pod_refers_to_exists(overlay: str) -> None:
    """Volume claims, config maps and accounts exist. The installer creates secrets, and pods start without them."""
    resources = rendered(overlay)
    there = {(one["kind"], one["metadata"]["name"]) for one in resources}
    for name, spec in pod_specs(resources).items():
        wanted = {("ServiceAccount", spec["serviceAccountName"])} if "serviceAccountName" in spec else set()
        mounted = {mount["name"] for container in spec["containers"] for mount in container.get("volumeMounts", [])}
        assert mounted == {volume["name"] for volume in spec.get("volumes", [])}, name
        for volume in spec.get("volumes", []):
            if "persistentVolumeClaim" in volume:
                wanted.add(("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]))
            if "configMap" in volume:
                wanted.add(("ConfigMap", volume["configMap"]["name"]))
            if "secret" in volume:
                assert volume["secret"]["optional"], name
        assert wanted <= there, f"{name}: {wanted - there}"


PIPELINES = {"gpu": "gpu", "single-node-pipelines": "cpu", "single-node": "", "shared-namespace": ""}
"""The compiled pipelines that each overlay installs. Their kinds exist only in Kubernetes-native mode."""


def compiled(table: str) -> list[Resource]:
    """Return every resource in the compiled pipelines of a table, or nothing without a table."""
    paths = sorted((MANIFESTS / "pipelines" / table).glob("*.yaml")) if table else []
    found = [one for path in paths for one in yaml.load_all(path.read_text(encoding="utf-8"), Loader=Go)]
    return [one for one in found if one["kind"] != "Kustomization"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_overlay_has_every_compiled_pipeline_of_its_table_unchanged(overlay: str) -> None:
    """Versions are named by their content and cannot be changed, so kustomize must leave them as they were compiled."""
    own = compiled(PIPELINES[overlay])
    assert {one["kind"] for one in own} == ({"Pipeline", "PipelineVersion"} if own else set())
    there = {(one["kind"], one["metadata"]["name"]): one["spec"] for one in rendered(overlay) if "spec" in one}
    there = {name: spec for name, spec in there.items() if name[0].startswith("Pipeline")}
    assert there == {(one["kind"], one["metadata"]["name"]): one["spec"] for one in own}
