"""The pod of a task that runs several steps: the largest of their requests, and everything that any of them needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from stillhouse.core.errors import InputError
from stillhouse.kubeflow.placement import Claim, Placement, Secret, cores, gib

T = TypeVar("T", Claim, Secret)
REMEDY = "give both the same in the placements"


def shared_pod(placements: Sequence[Placement], where: str) -> Placement:
    """One placement for steps that run one after the other in a pod.

    The node selection, queue and user come from the most demanding step. Sizes are the largest of all steps, and the
    timeout is the sum of all. Volumes, secrets and variables come from every step. Raises `InputError` if two steps
    conflict in these; `where` begins its sentence.
    """
    lead = max(placements, key=_demand)
    environment: dict[str, str] = {}
    for name, value in (item for placement in placements for item in placement.environment.items()):
        if environment.setdefault(name, value) != value:
            raise InputError(f"{where}: its steps set ${name} to {environment[name]!r} and to {value!r}; {REMEDY}")
    return dataclasses.replace(
        lead,
        nodes=1,
        cpu=max((one.cpu for one in placements), key=cores),
        cpu_limit=max((one.cpu_limit or one.cpu for one in placements), key=cores),
        memory=_largest(one.memory for one in placements),
        memory_limit=_largest(one.memory_limit or one.memory for one in placements),
        shared_memory=_largest(one.shared_memory for one in placements),
        scratch=_largest(one.scratch for one in placements),
        tolerations=tuple(dict.fromkeys(toleration for one in placements for toleration in one.tolerations)),
        claims=_by_role([one.claims for one in placements], where),
        secrets=_by_role([one.secrets for one in placements], where),
        environment=environment,
        annotations={name: value for one in placements for name, value in one.annotations.items()},
        retries=max(one.retries for one in placements),
        timeout_hours=sum(one.timeout_hours for one in placements),
    )


def launcher_of(placement: Placement) -> Placement:
    """The placement of the step's own pod, which starts the nodes and waits for them."""
    sizes: Any = {"cpu": "250m", "cpu_limit": "2", "memory": "1Gi", "memory_limit": "4Gi", "shared_memory": ""}
    return dataclasses.replace(placement, nodes=1, accelerator=None, node_selector={}, tolerations=(), **sizes)


def bare(placement: Placement) -> Placement:
    """The placement without volumes, secrets, queue and accelerator: its pod waits for nothing that may be missing."""
    mounts: Any = {"claims": (), "secrets": (), "shared_memory": ""}
    return dataclasses.replace(placement, nodes=1, queue="", priority="", accelerator=None, **mounts)


def _demand(placement: Placement) -> tuple[int, float, float]:
    accelerators = placement.accelerator.count if placement.accelerator else 0
    return accelerators, gib(placement.memory), cores(placement.cpu)


def _largest(sizes: Iterable[str]) -> str:
    return max(sizes, key=lambda size: gib(size) if size else 0.0)


def _by_role(of_steps: Iterable[Sequence[T]], where: str) -> tuple[T, ...]:
    """The claims or secrets of all steps, without duplicates."""
    found: dict[str, T] = {}
    for entry in (entry for entries in of_steps for entry in entries):
        if found.setdefault(entry.role, entry) != entry:
            raise InputError(f"{where}: its steps mount {entry.role} in two ways; {REMEDY}")
    return tuple(found.values())
