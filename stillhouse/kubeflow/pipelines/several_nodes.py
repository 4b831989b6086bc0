"""Steps on several nodes: a small pod that starts a `TrainJob`, and its settings for the nodes.

The pod gets the volumes, secrets and variables of the placement, and the nodes take them over from it. The placement's
CPUs, memory, accelerators and node selection only apply to the nodes.
"""

from __future__ import annotations

from stillhouse.core.monitoring.settings import GATEWAY, PIPELINE, PORT, RUN, TASK
from stillhouse.kubeflow.pipelines.place import PRIORITY, QUEUE, annotations_of
from stillhouse.kubeflow.pipelines.placement import Placement, Toleration
from stillhouse.kubeflow.pods.several_processes import PROCESSES
from stillhouse.kubeflow.trainjob.settings import NodeSettings
from stillhouse.pipeline.steps.registry import steps

MONITORED = (PORT, GATEWAY, PIPELINE, TASK, RUN)


def node_settings(placement: Placement, step: str, label: str) -> NodeSettings:
    """A placement as node settings for the step's pod; `label` is the name of its task."""
    known = steps().get(step)
    secrets = [variable for secret in placement.secrets for variable in secret.keys.values()]
    accelerator = placement.accelerator
    return NodeSettings(
        nodes=placement.nodes,
        task=label,
        cpu=placement.cpu,
        cpu_limit=placement.cpu_limit or placement.cpu,
        memory=placement.memory,
        memory_limit=placement.memory_limit or placement.memory,
        shared_memory=placement.shared_memory,
        scratch=placement.scratch,
        scratch_path=placement.scratch_path,
        accelerator_type=accelerator.type if accelerator else "",
        accelerator_count=accelerator.count if accelerator else 0,
        processes=int(placement.environment.get(PROCESSES) or 0) if known is None or known.parallel else 1,
        node_selector=dict(placement.node_selector),
        tolerations=tuple(_toleration(one) for one in placement.tolerations),
        labels={key: value for key, value in ((QUEUE, placement.queue), (PRIORITY, placement.priority)) if value},
        annotations=annotations_of(placement),
        user=placement.user,
        group=placement.group,
        timeout_seconds=round(placement.timeout_hours * 3600),
        variables=tuple(sorted({*placement.environment, *secrets, *MONITORED})),
        paths=(*(claim.path for claim in placement.claims), *(one.path for one in placement.secrets if one.path)),
    )


def _toleration(toleration: Toleration) -> dict[str, str]:
    found = {"key": toleration.key, "operator": "Equal" if toleration.value else "Exists"}
    if toleration.value:
        found["value"] = toleration.value
    return found | ({"effect": toleration.effect} if toleration.effect else {})
