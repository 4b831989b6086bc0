"""What a task's pod receives for Prometheus in the compiled pipeline."""

from pathlib import Path
from typing import Any

import yaml
from kfp import compiler, dsl

from stillhouse.kubeflow.pipelines.place import place
from stillhouse.kubeflow.pipelines.placement import Placement
from stillhouse.kubeflow.pipelines.stage_component import written

MONITORS = Path(__file__).resolve().parents[3] / "manifests" / "components" / "monitoring"


def compiled(folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    """Return the Kubernetes settings of the task's pod."""

    work = written("work", ["text: str"], "stillhouse.kubeflow.pods.stage", "run_stage")

    @dsl.pipeline(name="refresh")
    def refresh() -> None:
        place(work(text="ships"), Placement(environment=environment), "work", {})

    compiler.Compiler().compile(refresh, str(folder / "ir.yaml"))
    _, platform = yaml.safe_load_all((folder / "ir.yaml").read_text(encoding="utf-8"))
    return dict(platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]["exec-work"])


def test_a_pod_carries_its_identity_and_metrics_port(tmp_path: Path) -> None:
    asked = {"STILLHOUSE_METRICS_PORT": "9464", "STILLHOUSE_PUSHGATEWAY": "http://stillhouse-pushgateway:9091"}
    pod = compiled(tmp_path, asked)
    run = {one["name"]: one["fieldPath"] for one in pod["fieldPathAsEnv"]}
    assert run == {"STILLHOUSE_RUN": "metadata.labels['pipeline/runid']"}
    assert pod["podMetadata"]["annotations"] == {"prometheus.io/scrape": "true", "prometheus.io/port": "9464"}


def test_the_manifests_scrape_the_port_that_pods_use(tmp_path: Path) -> None:
    """The monitor uses the annotation, the policy allows that port, and the gateway has the name that pods use."""
    pod = compiled(tmp_path, {"STILLHOUSE_METRICS_PORT": "9464"})
    [monitor] = [one for one in read("monitors.yaml") if one["metadata"]["name"] == "stillhouse-steps"]
    labels = {
        label for rule in monitor["spec"]["podMetricsEndpoints"][0]["relabelings"] for label in rule["sourceLabels"]
    }
    assert "__meta_kubernetes_pod_annotation_prometheus_io_port" in labels
    [scraping] = [one for one in read("network.yaml") if one["metadata"]["name"] == "scraping"]
    [rule] = scraping["spec"]["ingress"]
    assert [str(port["port"]) for port in rule["ports"]] == [pod["podMetadata"]["annotations"]["prometheus.io/port"]]
    [service] = [one for one in read("pushgateway.yaml") if one["kind"] == "Service"]
    assert (service["metadata"]["name"], service["spec"]["ports"][0]["port"]) == ("stillhouse-pushgateway", 9091)


def read(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((MONITORS / name).read_text(encoding="utf-8")))
