"""How much of what a run asks for a cluster has; `admission` judges it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from stillhouse.kubeflow.cluster.api import Api, NoSuchKind, Unseen
from stillhouse.kubeflow.cluster.quantity import amount
from stillhouse.kubeflow.cluster.wanted import Wanted, WantedSecret

Plain = dict[str, Any]
Kind = TypeVar("Kind")


@dataclass(frozen=True, kw_only=True)
class Node:
    """`allocatable` is the most that all its pods may request; a taint has `key`, `value` and `effect`."""

    name: str
    allocatable: Mapping[str, float]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Readings:
    """What was read. None or an absent name stands for what could not be read; `unseen` says why.

    A claim's phase is None if it does not exist; `secrets` has the keys that each secret lacks.
    """

    nodes: tuple[Node, ...] | None = None
    claims: Mapping[str, str | None] = field(default_factory=dict)
    queues: Mapping[str, bool] = field(default_factory=dict)
    """Whether each Kueue queue exists."""
    secrets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unseen: tuple[str, ...] = ()


def take_readings(wanted: Wanted, api: Api | None, environment: Mapping[str, str] = os.environ) -> Readings:
    """Reads as much of the cluster as this pod may. Without an `api`, only the secrets that it was given."""
    unseen: dict[str, None] = {}
    answers = api is not None

    def look(what: str, ask: Callable[[Api], Kind]) -> Kind | None:
        nonlocal answers
        if api is None or not answers:
            return None
        try:
            return ask(api)
        except Unseen as error:
            answers = error.reached
            unseen[f"{what}: {error}" if error.reached else str(error)] = None
            return None

    accelerators = any(kind.accelerator for kind in wanted.pods)
    nodes = look("the nodes", lambda api: tuple(map(read_node, api.nodes()))) if accelerators else None
    names = dict.fromkeys(wanted.claims.values())
    claims = look("the volume claims", lambda api: {name: _phase(api.claim(name)) for name in names}) or {}
    in_queues = dict.fromkeys(kind.queue for kind in wanted.pods if kind.queue)
    queues = look("the queues", lambda api: {name: _queue(api, name) for name in in_queues}) or {}
    secrets = {secret.parameter: _lacking(secret, environment) for secret in wanted.secrets}
    return Readings(
        nodes=nodes,
        claims=claims,
        queues=queues,
        secrets=secrets,
        unseen=tuple(unseen),
    )


def read_node(node: Plain) -> Node:
    allocatable = node.get("status", {}).get("allocatable", {})
    return Node(
        name=node["metadata"]["name"],
        allocatable={name: amount(value) for name, value in allocatable.items()},
        labels=node["metadata"].get("labels", {}),
        taints=tuple(node.get("spec", {}).get("taints") or ()),
    )


def _phase(claim: Plain | None) -> str | None:
    return None if claim is None else str(claim.get("status", {}).get("phase", ""))


def _queue(api: Api, name: str) -> bool:
    try:
        return api.local_queue(name) is not None
    except NoSuchKind:
        raise Unseen("this cluster has no Kueue, so pods start without waiting for a queue") from None


def _lacking(secret: WantedSecret, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The keys that this pod did not receive; for a folder of files, the whole secret."""
    if secret.path:
        folder = Path(secret.path)
        return () if folder.is_dir() and any(folder.iterdir()) else ("every file",)
    return tuple(key for key, variable in secret.keys.items() if variable not in environment)
