"""What Prometheus finds of a task's pod."""

from pathlib import Path
from typing import Any

import yaml

from stillhouse.kubeflow.pipelines.placement_table import find_table

MONITORS = Path(__file__).resolve().parents[3] / "manifests" / "components" / "monitoring"


def test_the_manifests_scrape_the_port_that_pods_use() -> None:
    """The monitor uses the annotation, the policy allows that port, and the gateway has the name that pods use."""
    annotations = find_table("gpu").of("pretrain").pod_annotations
    [monitor] = [one for one in read("monitors.yaml") if one["metadata"]["name"] == "stillhouse-steps"]
    labels = {
        label for rule in monitor["spec"]["podMetricsEndpoints"][0]["relabelings"] for label in rule["sourceLabels"]
    }
    assert "__meta_kubernetes_pod_annotation_prometheus_io_port" in labels
    [scraping] = [one for one in read("network.yaml") if one["metadata"]["name"] == "scraping"]
    [rule] = scraping["spec"]["ingress"]
    assert [str(port["port"]) for port in rule["ports"]] == [annotations["prometheus.io/port"]]
    [service] = [one for one in read("pushgateway.yaml") if one["kind"] == "Service"]
    assert (service["metadata"]["name"], service["spec"]["ports"][0]["port"]) == ("stillhouse-pushgateway", 9091)


def read(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((MONITORS / name).read_text(encoding="utf-8")))
