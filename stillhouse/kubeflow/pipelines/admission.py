"""The task that checks the cluster before all others, and the last task of a run: pods that wait for nothing.

A pod with a missing claim or queue never starts and cannot report it. These two tasks use neither, so that the first
can report what is missing and the last how the run ended.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from kfp import kubernetes
from kfp.dsl.pipeline_task import PipelineTask

from stillhouse.kubeflow.cluster.wanted import PodKind, Wanted, WantedSecret
from stillhouse.kubeflow.pipelines.place import hand_down
from stillhouse.kubeflow.pipelines.placement import Placement, Secret, Toleration
from stillhouse.kubeflow.pods.pipeline_parameters import COUNT, TYPE
from stillhouse.kubeflow.trainjob.settings import POD_NAMESPACE

LOOK, END = "check-cluster", "report-end"
"""The components that wait for nothing."""
PLACE = "/look"
"""Where the checking task mounts secrets with files, each in a folder named after its parameter."""


def bare(placement: Placement) -> Placement:
    """The placement without volumes, secrets, queue and accelerator."""
    return dataclasses.replace(
        placement,
        nodes=1,
        claims=(),
        secrets=(),
        queue="",
        priority="",
        accelerator=None,
        preflight=False,
        shared_memory="",
    )


def ask_for_look(
    task: PipelineTask, asked: Mapping[str, Placement], default: Placement, chosen: Mapping[str, Any]
) -> PipelineTask:
    """Gives the checking task the requests of the steps' pods; `asked` has their placements by step.

    It receives required secrets, and secrets of every pod, as optional ones. That shows whether they exist without
    permission to read secrets. Other optional secrets are left to the few pods that use them.
    """
    wanted = wanted_of(asked, default)
    task.inputs["wanted"] = wanted.to_json()
    kubernetes.use_field_path_as_env(task, POD_NAMESPACE, "metadata.namespace")
    for secret in wanted.secrets:
        name = chosen.get(secret.parameter, secret.name)
        if secret.keys:
            kubernetes.use_secret_as_env(task, name, dict(secret.keys), optional=True)
        else:
            kubernetes.use_secret_as_volume(task, name, secret.path, optional=True)
    names = [*wanted.claims, *(secret.parameter for secret in wanted.secrets)]
    hand_down(task, names + ([TYPE, COUNT] if wanted.accelerator_type else []), chosen)
    return task


def wanted_of(asked: Mapping[str, Placement], default: Placement) -> Wanted:
    """What pods with these placements ask for together, with the parameters' default names."""
    kinds: dict[str, PodKind] = {}
    secrets: dict[str, WantedSecret] = {}
    claims: dict[str, str] = {}
    accelerator = None
    for step, placement in asked.items():
        kind = _kind(step, placement)
        key = repr(dataclasses.replace(kind, tasks=()))
        known = kinds.get(key)
        kinds[key] = dataclasses.replace(known, tasks=(*known.tasks, step)) if known else kind
        accelerator = accelerator or placement.accelerator
        claims |= {claim.parameter: claim.name for claim in placement.claims}
        for secret in placement.secrets:
            if secret in default.secrets or not secret.optional:
                _add(secrets, secret)
    return Wanted(
        pods=tuple(kinds.values()),
        claims=claims,
        secrets=tuple(secrets.values()),
        accelerator_type=accelerator.type if accelerator else "",
        accelerator_count=str(accelerator.count) if accelerator else "0",
    )


def _add(secrets: dict[str, WantedSecret], secret: Secret) -> None:
    """Adds a secret, or merges it with another placement's secret of the same parameter."""
    known = secrets.get(secret.parameter)
    keys = sorted({*secret.keys, *(known.keys if known else ())})
    secrets[secret.parameter] = WantedSecret(
        parameter=secret.parameter,
        name=secret.name,
        optional=secret.optional and (known is None or known.optional),
        keys={key: f"LOOK_{secret.parameter}_{number}".upper() for number, key in enumerate(keys)},
        path="" if keys else f"{PLACE}/{secret.parameter}",
    )


def _kind(step: str, placement: Placement) -> PodKind:
    return PodKind(
        tasks=(step,),
        cpu=placement.cpu,
        memory=placement.memory,
        accelerator=placement.accelerator is not None,
        node_selector=dict(placement.node_selector),
        tolerations=tuple(_toleration(one) for one in placement.tolerations),
        queue=placement.queue,
        scales_from_zero=placement.scales_from_zero,
    )


def _toleration(toleration: Toleration) -> dict[str, str]:
    return {name: value for name, value in dataclasses.asdict(toleration).items() if value}
