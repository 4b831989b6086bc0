"""A search service on a cluster, with a Deployment and with KServe: fields, arguments, and who can reach it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from network_policies import Peer, lets_through
from rendered_overlays import MANIFESTS, SERVING, Resource, pod_specs, rendered, with_component
from test_overlays import KUBERNETES, check_custom

from stillhouse.cli.serve import check, serve_parser
from stillhouse.monitoring.table import SERVICES
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
    parsed = serve_parser().parse(arguments)
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
    parsed = serve_parser().parse(words(container)[1:])
    assert (parsed.place, parsed.release) == ("git@git.example:mine.git", "v1.2.0")


@pytest.mark.parametrize("overlay", SERVING)
def test_serving_pods_have_the_secrets_of_the_watcher(overlay: str) -> None:
    def secrets(spec: Resource) -> set[str]:
        [container] = spec["containers"]
        of_environment = [entry.get("valueFrom", {}).get("secretKeyRef") for entry in container["env"]]
        assert all(secret["optional"] for secret in of_environment if secret)
        volumes = {volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume}
        return volumes | {secret["name"] for secret in of_environment if secret}

    watcher = pod_specs(rendered("single-node"))["CronJob/stillhouse-watcher"]
    assert secrets(pod(overlay)) == secrets(watcher) | {"stillhouse-serving"}


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
    assert service["metadata"]["name"] == serve_parser().parse(words(container)[1:]).model


@pytest.mark.parametrize(
    "wrong",
    [
        {"securityContext": {"runAsUser": 1}},
        {"canaryTrafficPercent": 101},
        {"containers": [{"name": "serve", "image": "x"}]},
        {"terminationGracePeriodSeconds": 1},
    ],
)
def test_the_check_sees_what_kserve_or_knative_would_refuse(wrong: dict[str, Any]) -> None:
    service = one(rendered("kserve"), "InferenceService")
    predictor = service["spec"]["predictor"]
    check_custom(service | {"spec": {"predictor": predictor | {"canaryTrafficPercent": 10}}})
    with pytest.raises(jsonschema.ValidationError):
        check_custom(service | {"spec": {"predictor": predictor | wrong}})


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
    grace = serve_parser().parse(words(container)[1:]).grace
    pause = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert template["spec"]["terminationGracePeriodSeconds"] > grace + pause


def test_only_the_autoscaler_sets_the_replicas(tmp_path: Path) -> None:
    made = with_component(tmp_path, "serving", "serving-autoscaling", namespace="stillhouse")
    scaler, deployment = one(made, "HorizontalPodAutoscaler"), one(made, "Deployment")
    assert scaler["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    assert "replicas" not in deployment["spec"]
    for version in KUBERNETES:
        kubernetes_validate.validate(scaler, version, strict=True)
        kubernetes_validate.validate(deployment, version, strict=True)


def test_a_remote_in_a_folder_is_read_alone(tmp_path: Path) -> None:
    made = with_component(tmp_path, "single-node", "serving", "serving-store", namespace="stillhouse")
    spec = pod_specs(made)["Deployment/stillhouse-serving"]
    [store] = [mount for mount in spec["containers"][0]["volumeMounts"] if mount["mountPath"] == "/store"]
    assert store["readOnly"]
    [claim] = [volume["persistentVolumeClaim"]["claimName"] for volume in spec["volumes"] if volume["name"] == "store"]
    assert claim in {found["metadata"]["name"] for found in made if found["kind"] == "PersistentVolumeClaim"}


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


def test_the_page_shows_what_the_overlays_ask_for() -> None:
    page = (MANIFESTS.parent / "docs" / "deploy.md").read_text(encoding="utf-8")
    shown = [part for part in page.split("```")[1::2] if "manifests/overlays/serving" in part]
    [overlay] = [yaml.safe_load(part.removeprefix("yaml")) for part in shown]
    [patch] = yaml.safe_load(overlay["patches"][0]["patch"])
    assert patch["path"].endswith("/env/0/value") and patch["value"].endswith(".git")
    table = page.split("## Who talks to whom")[1].split("\n## ")[0]
    assert {"8080", "8012", "9090"} <= set(re.findall(r"\b\d{2,5}\b", table))


def test_a_service_has_the_metrics_of_the_table() -> None:
    class Shelf:
        swaps = refusals = 0
        refused, behind, looked = None, 0.0, 0.0

    service: Any = make_service(Shelf(), Limits(), log=print)  # type: ignore[arg-type]
    try:
        kinds = dict(re.findall(r"# TYPE (\S+) (\S+)", service.metrics.text("r").decode()))
    finally:
        service.batcher.end()
    here = {name: kind for name, kind in kinds.items() if not name.endswith("_created")}
    table = {metric.name: metric.kind for metric in SERVICES}
    assert here == table
