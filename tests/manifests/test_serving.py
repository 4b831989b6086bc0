"""A search service on a cluster, with a Deployment and with KServe: fields, arguments, and who can reach it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from network_policies import Peer, lets_through
from rendered_overlays import SERVING, Resource, pod_specs, rendered, with_component
from test_overlays import KUBERNETES

from stillhouse.cli.serve import check, serve_arguments
from stillhouse.core.monitoring.table import SERVICES
from stillhouse.serving.app import make_service
from stillhouse.serving.settings import Limits

LABELS = {"app.kubernetes.io/name": "stillhouse-serving"}
REPOSITORY = "https://git.example/search/releases.git"


def pod(overlay: str) -> Resource:
    [spec] = pod_specs(rendered(overlay)).values()
    return spec


def one(resources: tuple[Resource, ...], kind: str) -> Resource:
    [found] = [resource for resource in resources if resource["kind"] == kind]
    return found


def words(container: Resource) -> list[str]:
    """Return the arguments with variables expanded, as Kubernetes passes them to the container."""
    values = {entry["name"]: entry.get("value", "") for entry in container["env"]}
    return [re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], word) for word in container["args"]]


@pytest.mark.parametrize("overlay", SERVING)
def test_the_command_accepts_the_container_s_arguments(overlay: str) -> None:
    [container] = pod(overlay)["containers"]
    command, *arguments = words(container)
    parsed = serve_arguments(arguments)
    assert command == "serve" and isinstance(check(parsed), Limits)
    assert (parsed.place, parsed.release, parsed.host) == (REPOSITORY, "", "0.0.0.0")
    ports = {port["containerPort"] for port in container["ports"]}
    assert ports == {parsed.port} == {8080}
    written = [Path(mount["mountPath"]) for mount in container["volumeMounts"] if not mount.get("readOnly")]
    values = {entry["name"]: entry.get("value", "") for entry in container["env"]}
    for place in (parsed.fetch_into, *(Path(values[name]) for name in ("STILLHOUSE_WORK", "HOME", "TMPDIR"))):
        assert any(place.is_relative_to(folder) for folder in written), "its root is read-only"
    assert parsed.fetch_into.parent in written, "the lock lies beside the folder"


@pytest.mark.parametrize("overlay", SERVING)
def test_an_overlay_names_its_repository_and_release_first(overlay: str, tmp_path: Path) -> None:
    kind, path = {"serving": ("Deployment", "/spec/template/spec"), "kserve": ("InferenceService", "/spec/predictor")}[
        overlay
    ]
    patch = [
        {"op": "replace", "path": f"{path}/containers/0/env/{place}/value", "value": value}
        for place, value in enumerate(("git@git.example:mine.git", "v1.2.0"))
    ]
    made = with_component(
        tmp_path, overlay, patches=[{"target": {"kind": kind}, "patch": yaml.safe_dump(patch, sort_keys=False)}]
    )
    [spec] = pod_specs(made).values()
    [container] = spec["containers"]
    parsed = serve_arguments(words(container)[1:])
    assert (parsed.place, parsed.release) == ("git@git.example:mine.git", "v1.2.0")


@pytest.mark.parametrize("version", KUBERNETES)
def test_pods_of_an_inference_service_have_the_fields_of_kubernetes(version: str) -> None:
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": LABELS}, "spec": pod("kserve")}
    kubernetes_validate.validate(made, version, strict=True)


def test_the_inference_service_scales_to_zero_and_speaks_v2() -> None:
    service = one(rendered("kserve"), "InferenceService")
    predictor = service["spec"]["predictor"]
    [container] = predictor["containers"]
    assert predictor["minReplicas"] == 0 and predictor["labels"].items() >= LABELS.items()
    assert {"name": "PROTOCOL", "value": "v2"} in container["env"]
    # KServe's clients use the name of the service as the name of the model.
    assert service["metadata"]["name"] == serve_arguments(words(container)[1:]).model


def test_the_deployment_s_parts_choose_its_pods() -> None:
    resources = rendered("serving")
    deployment, service = one(resources, "Deployment"), one(resources, "Service")
    template = deployment["spec"]["template"]
    labels = template["metadata"]["labels"]
    for selector in (
        deployment["spec"]["selector"]["matchLabels"],
        service["spec"]["selector"],
        one(resources, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    [container] = template["spec"]["containers"]
    names = {port["name"] for port in container["ports"]}
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]
    assert {port["targetPort"] for port in service["spec"]["ports"]} == names == {probe["port"] for probe in probes}
    grace = serve_arguments(words(container)[1:]).grace
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert template["spec"]["terminationGracePeriodSeconds"] > grace + pause


SERVICE = Peer("stillhouse", LABELS)
STEP = Peer("stillhouse", {"pipelines.kubeflow.org/v2_component": "true"})
ALLOWED = Peer("shop", {"app": "site"}, {"stillhouse.io/search": "allowed"})
ACTIVATOR = Peer("knative-serving", {"app": "activator"})
PROMETHEUS = Peer("monitoring", {"app.kubernetes.io/name": "prometheus"})
STRANGER = Peer("elsewhere", {"app": "x"})
FLOWS: list[tuple[Peer, Peer, int, set[str]]] = [
    (ALLOWED, SERVICE, 8080, {"serving", "kserve"}),
    (ACTIVATOR, SERVICE, 8012, {"kserve"}),
    (ACTIVATOR, SERVICE, 9090, {"kserve"}),
    (PROMETHEUS, SERVICE, 8080, {"serving", "kserve"}),
    (SERVICE, Peer(), 443, {"serving", "kserve"}),
    (SERVICE, Peer(), 22, {"serving", "kserve"}),
    (SERVICE, Peer("kubeflow", {"app": "seaweedfs"}), 8333, {"serving", "kserve"}),
    (STRANGER, SERVICE, 8080, set()),
    (STEP, SERVICE, 8080, set()),
    (ALLOWED, SERVICE, 9090, {"kserve"}),
    (SERVICE, Peer(), 80, set()),
    (SERVICE, SERVICE, 8080, set()),
]


@pytest.mark.parametrize("component", ["serving", "kserve"])
def test_only_admitted_clients_reach_the_service(component: str, tmp_path: Path) -> None:
    made = with_component(tmp_path, "single-node", component, "monitoring", namespace="stillhouse")
    policies = [resource for resource in made if resource["kind"] == "NetworkPolicy"]
    for source, target, port, where in FLOWS:
        assert lets_through(policies, source, target, port) is (component in where), (source, target, port)


def test_a_service_has_the_metrics_of_the_table() -> None:
    class OpenReleases:
        swaps = refusals = 0
        refused, behind, looked = None, 0.0, 0.0

    service: Any = make_service(OpenReleases(), Limits(), log=print)  # type: ignore[arg-type]
    try:
        kinds = dict(re.findall(r"# TYPE (\S+) (\S+)", service.metrics.text("r").decode()))
    finally:
        service.batcher.end()
    here = {name: kind for name, kind in kinds.items() if not name.endswith("_created")}
    table = {metric.name: metric.kind for metric in SERVICES}
    assert here == table
