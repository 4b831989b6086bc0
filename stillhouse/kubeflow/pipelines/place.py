"""Applies a placement to a task of a pipeline, through kfp and kfp-kubernetes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kfp import kubernetes
from kfp.dsl.pipeline_channel import PipelineChannel
from kfp.dsl.pipeline_task import PipelineTask

from stillhouse.core.monitoring.settings import GATEWAY, PORT, RUN
from stillhouse.kubeflow.pipelines.stage_component import call_of
from stillhouse.kubeflow.placement import SHARED_MEMORY, Placement
from stillhouse.kubeflow.pods import task as task_program
from stillhouse.kubeflow.pods.process import HAS_GPU
from stillhouse.kubeflow.trainjob.manifest import TASK_LABEL
from stillhouse.kubeflow.trainjob.own_pod import RUN_LABEL

IMAGE = "image"
PAUSE_FACTOR = 2.0
"""Each pause before a retry is longer than the previous one by this factor."""
LONGEST_SECONDS = 10 * 365 * 24 * 3600
"""kfp calls it `backoff_max_duration`, but it does not limit a pause: Argo counts it from the creation of the first
pod, with the weeks in a queue, starts no retry after it, and ends a retry that is still running."""

Chosen = Mapping[str, Any]
"""The pipeline's parameters by name, as kfp passes them to the pipeline's function."""


def place(
    task: PipelineTask, placement: Placement, step: str, chosen: Chosen, pipeline: str = "", label: str = ""
) -> None:
    """Sets the image, resources, nodes, volumes, secrets, retries, timeout and identity of the task's pod.

    `chosen` holds the parameters that `placement.parameters` names, and the image. `step` labels the pod, `pipeline`
    and `label` its metrics.
    """
    # At each setting kfp reads the source of all callers, to name one if the task had no container: most of the time.
    vars(task).update(_ensure_container_spec_exists=lambda: None)
    if IMAGE in chosen:
        task.set_container_image(chosen[IMAGE])
    task.set_cpu_request(placement.cpu).set_cpu_limit(placement.limits["cpu"])
    task.set_memory_request(placement.memory).set_memory_limit(placement.limits["memory"])
    if placement.accelerator:
        accelerator = [chosen["accelerator_type"], chosen["accelerator_count"]]
        task.set_accelerator_type(accelerator[0]).set_accelerator_limit(accelerator[1])
        # kfp 2.17 does not pass these two to a task inside a loop or an exit handler.
        task.register_pipeline_channels([value for value in accelerator if isinstance(value, PipelineChannel)])
    _choose_nodes(task, placement)
    _mount(task, placement)
    for name, value in placement.environment.items():
        task.set_env_variable(name, value)
    if placement.accelerator:
        task.set_env_variable(HAS_GPU, "1")
    if {PORT, GATEWAY} & placement.environment.keys():
        kubernetes.use_field_path_as_env(task, RUN, f"metadata.labels['{RUN_LABEL}']")
    for name, value in placement.pod_annotations.items():
        kubernetes.add_pod_annotation(task, name, value)
    kubernetes.add_pod_label(task, TASK_LABEL, step)
    kubernetes.set_security_context(
        task, run_as_user=placement.user, run_as_group=placement.group, run_as_non_root=True
    )
    kubernetes.set_timeout(task, round(placement.timeout_hours * 3600))
    if placement.retries:
        task.set_retry(placement.retries, f"{placement.retry_after_seconds}s", PAUSE_FACTOR, f"{LONGEST_SECONDS}s")
    call_in_the_pod(task, pipeline, label)


def call_in_the_pod(task: PipelineTask, pipeline: str, label: str) -> None:
    """Makes the pod call the component's function in the image: kfp's own command has the component's source in it."""
    spec = task.container_spec
    assert spec.command and spec.args
    spec.command = ["python3", "-m", task_program.__name__, pipeline, label, *call_of(str(spec.command[-1]))]
    spec.args = spec.args[:2]


def hand_down(task: PipelineTask, names: Sequence[str], chosen: Chosen) -> None:
    """Turns pipeline parameters into inputs of a task, where its process reads them (`pipeline_parameters`).

    Environment variables cannot hold parameters. kfp does the same with a parameter in a pod's resources.
    """
    channels = {name: chosen[name] for name in names if isinstance(chosen.get(name), PipelineChannel)}
    task.register_pipeline_channels(list(channels.values()))
    task.inputs.update({name: channel.pattern for name, channel in channels.items()})


def _choose_nodes(task: PipelineTask, placement: Placement) -> None:
    for name, value in placement.node_selector.items():
        kubernetes.add_node_selector(task, name, value)
    for toleration in placement.tolerations:
        kubernetes.add_toleration(task, **toleration.plain)
    for name, value in placement.queue_labels.items():
        kubernetes.add_pod_label(task, name, value)


def _mount(task: PipelineTask, placement: Placement) -> None:
    if placement.shared_memory:
        kubernetes.empty_dir_mount(task, "shared-memory", SHARED_MEMORY, "Memory", placement.shared_memory)
    kubernetes.empty_dir_mount(task, "scratch", placement.scratch_path, size_limit=placement.scratch)
    for claim in placement.claims:
        kubernetes.mount_pvc(task, pvc_name=claim.name, mount_path=claim.path)
    for secret in placement.secrets:
        if secret.keys:
            kubernetes.use_secret_as_env(task, secret.name, dict(secret.keys), optional=secret.optional)
        else:
            kubernetes.use_secret_as_volume(task, secret.name, secret.path, optional=secret.optional)
