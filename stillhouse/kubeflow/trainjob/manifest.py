"""Builds the `TrainJob` of a step from its settings and the step's own pod, without talking to a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stillhouse.core.artifacts import digest_json
from stillhouse.core.context import WORK_ROOT
from stillhouse.kubeflow.placement import SHARED_MEMORY, Placement
from stillhouse.kubeflow.pods.process import HAS_GPU
from stillhouse.kubeflow.trainjob.own_pod import RUN_LABEL, OwnPod, Plain
from stillhouse.kubeflow.trainjob.settings import NodeSettings

GROUP, VERSION, PLURAL = "trainer.kubeflow.org", "v1alpha1", "trainjobs"
RUNTIME_GPU, RUNTIME_CPU = "stillhouse-torch", "stillhouse-torch-cpu"
"""The runtimes of manifests/components/trainer/runtimes.yaml."""
NODE = "node"
"""The name of a runtime's job and container, which Trainer looks for."""
MANAGER = "stillhouse.io/steps"
TASK_LABEL = "stillhouse.io/task"
WORK_VOLUME = "work"
RENDEZVOUS = "PET_RDZV_CONF"
"""torchrun's environment variable for how long nodes wait for each other."""


def job_name(step: str, run: str, task: str, work: str) -> str:
    """The name of a job, the same for a retry of the same task in the same run.

    `work` names code, settings and inputs. A name has at most 48 characters, since Trainer extends it to name pods,
    and pod names are host names.
    """
    name = f"stillhouse-{step}-{digest_json([run, task, work])[:12]}"
    assert len(name) <= 48, name
    return name


def train_job(
    name: str, step: str, command: Sequence[str], settings: NodeSettings, pod: OwnPod, values: Mapping[str, str]
) -> Plain:
    """The job that runs `command` on every node. `values` is the environment of the step's process."""
    placement = settings.placement
    gpu = placement.accelerator
    # In requests too: Trainer assumes that a node without them runs a single process.
    accelerators = {gpu.type: str(gpu.count)} if gpu else {}
    resources = {"requests": placement.requests | accelerators, "limits": placement.limits | accelerators}
    metadata = {
        "name": name,
        "labels": {"app.kubernetes.io/part-of": "stillhouse", TASK_LABEL: step, RUN_LABEL: pod.run}
        | placement.queue_labels,
        "ownerReferences": [pod.owner],
    }
    runtime, timeout = RUNTIME_GPU if gpu else RUNTIME_CPU, round(placement.timeout_hours * 3600)
    variables = [{"name": RENDEZVOUS, "value": f"timeout={timeout}"}]
    variables += [{"name": HAS_GPU, "value": "1"}] if gpu else []
    spec = {
        "runtimeRef": {"apiGroup": GROUP, "kind": "TrainingRuntime", "name": runtime},
        "trainer": {
            "image": pod.image,
            "command": list(command),
            "numNodes": placement.nodes,
            "numProcPerNode": settings.processes,
            "resourcesPerNode": resources,
            "env": variables + pod.variables(placement.variables, values),
        },
        "runtimePatches": [{"manager": MANAGER, "trainingRuntimeSpec": _patch(step, placement, pod, values)}],
        "activeDeadlineSeconds": timeout,
    }
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": "TrainJob", "metadata": metadata, "spec": spec}


def _patch(step: str, placement: Placement, pod: OwnPod, values: Mapping[str, str]) -> Plain:
    """The part of the runtime's pod that depends on the placement or the run."""
    volumes, mounts = _volumes(placement, pod, values)
    spec: Plain = {
        "securityContext": {"runAsUser": placement.user, "runAsGroup": placement.group, "fsGroup": placement.group},
        "volumes": volumes,
        "containers": [{"name": NODE, "volumeMounts": mounts}],
    }
    if placement.node_selector:
        spec["nodeSelector"] = dict(placement.node_selector)
    if placement.tolerations:
        spec["tolerations"] = [one.plain for one in placement.tolerations]
    if pod.pull_secrets:
        spec["imagePullSecrets"] = [dict(one) for one in pod.pull_secrets]
    metadata = {"labels": {TASK_LABEL: step}, "annotations": placement.pod_annotations}
    template: Plain = {"spec": spec, "metadata": metadata}
    jobs = [{"name": NODE, "template": {"spec": {"template": template}}}]
    return {"template": {"spec": {"replicatedJobs": jobs}}}


def _volumes(placement: Placement, pod: OwnPod, values: Mapping[str, str]) -> tuple[list[Plain], list[Plain]]:
    """Scratch, shared memory, and the volumes that the step's pod has at the named paths.

    A volume that the runtime also has keeps the runtime's name, so that it replaces it.
    """
    volumes: list[Plain] = [{"name": "scratch", "emptyDir": {"sizeLimit": placement.scratch}}]
    mounts = [{"name": "scratch", "mountPath": placement.scratch_path}]
    if placement.shared_memory:
        volumes.append(
            {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": placement.shared_memory}}
        )
        mounts.append({"name": "shared-memory", "mountPath": SHARED_MEMORY})
    for number, path in enumerate(placement.paths):
        if path in pod.volumes:
            name = WORK_VOLUME if path == values.get(WORK_ROOT) else f"volume-{number}"
            volumes.append({"name": name} | pod.volumes[path])
            mounts.append({"name": name, "mountPath": path})
    return volumes, mounts
