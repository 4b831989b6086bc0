"""What a task's pod needs to report to Prometheus: its labels, and where to scrape it.

The placement decides whether it reports anything: its environment names a port to serve metrics on
(`STILLHOUSE_METRICS_PORT`), a Pushgateway for results (`STILLHOUSE_PUSHGATEWAY`), both or neither.
"""

from __future__ import annotations

from collections.abc import Mapping

from kfp import kubernetes
from kfp.dsl.pipeline_task import PipelineTask

from stillhouse.core.monitoring.settings import GATEWAY, PORT, RUN, monitoring_settings
from stillhouse.kubeflow.trainjob.own_pod import RUN_LABEL


def watch(task: PipelineTask, environment: Mapping[str, str]) -> PipelineTask:
    """Sets the run's name and the Prometheus port in the pod if `environment` asks for metrics.

    Raises `InputError` for an invalid port or address.
    """
    if not {PORT, GATEWAY} & environment.keys():
        return task
    kubernetes.use_field_path_as_env(task, RUN, f"metadata.labels['{RUN_LABEL}']")
    for name, value in scrape_annotations(environment).items():
        kubernetes.add_pod_annotation(task, name, value)
    return task


def scrape_annotations(environment: Mapping[str, str]) -> dict[str, str]:
    """Where to scrape a pod. A task cannot declare a container port; the monitor in manifests/ reads these instead."""
    port = monitoring_settings(environment).port
    return {"prometheus.io/scrape": "true", "prometheus.io/port": str(port)} if port else {}
