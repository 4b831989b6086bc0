"""Whether a cluster can run what a run asks for: everything that would make a pod wait forever, with its remedy.

A run is refused if something is permanently missing. What may still appear, or could not be checked, is a notice. A
pod that waits for a missing claim, GPU type or queue reports it to nobody, and its run never ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stillhouse.core.errors import InputError
from stillhouse.kubeflow.cluster.quantity import amount
from stillhouse.kubeflow.cluster.readings import Node, Readings
from stillhouse.kubeflow.cluster.remedies import CREATE_CLAIM, CREATE_QUEUE, CREATE_SECRET
from stillhouse.kubeflow.cluster.wanted import PodKind, Wanted, WantedSecret

HINDERING = ("NoSchedule", "NoExecute")
OWN_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Taints that Kubernetes itself sets on nodes that are not ready, full or cordoned, and removes again."""
SCALES = "if the cluster adds nodes on demand, set `scales_from_zero: true` in the placements"
GIB = 1024.0**3


@dataclass
class Findings:
    """The problems that refuse the run, and the notices that are only reported."""

    problems: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)


def find(wanted: Wanted, seen: Readings) -> Findings:
    """Everything that a run needs and the cluster lacks: each once, as a sentence with its remedy."""
    found = Findings(notices=[f"not checked: {why}" for why in seen.unseen])
    for name in dict.fromkeys(wanted.claims.values()):
        found.problems += _claim_problems(name, [of for of, one in wanted.claims.items() if one == name], seen.claims)
    for secret in wanted.secrets:
        _look_at_secret(secret, seen.secrets.get(secret.parameter, ()), found)
    if any(kind.accelerator for kind in wanted.pods) and not re.fullmatch("[1-9][0-9]*", wanted.accelerator_count):
        found.problems.append(f"accelerator_count is {wanted.accelerator_count!r}; use a whole number of at least 1")
        return found
    _look_at_nodes(wanted, seen.nodes, found)
    for name in dict.fromkeys(kind.queue for kind in wanted.pods):
        if seen.queues.get(name) is False:
            found.problems.append(f"Kueue has no LocalQueue {name} in this namespace: {CREATE_QUEUE}")
    return found


def check(wanted: Wanted, seen: Readings) -> list[str]:
    """The notices about a suitable cluster. Raises `InputError` with every problem and its remedy."""
    found = find(wanted, seen)
    if found.problems:
        lines = [*(f"  - {line}" for line in found.problems), *(f"  ({line})" for line in found.notices)]
        raise InputError("\n".join(["this cluster cannot run the pipeline with these settings:", *lines]))
    return found.notices


def _claim_problems(name: str, parameters: Sequence[str], seen: Mapping[str, str | None]) -> list[str]:
    if name not in seen or seen[name] not in (None, "Lost"):
        return []
    own = " and ".join(parameters)
    if seen[name] is None:
        return [f"volume claim {name} does not exist: {CREATE_CLAIM} ({own})"]
    return [f"volume claim {name} has lost its volume: restore the volume, or name another claim ({own})"]


def _look_at_secret(secret: WantedSecret, lacking: Sequence[str], found: Findings) -> None:
    if not lacking:
        return
    what = f"secret {secret.name} does not exist, or lacks {', '.join(lacking)}"
    if secret.optional:
        found.notices.append(f"{what}; ignore this if the run needs no such credentials ({secret.parameter})")
    else:
        found.problems.append(f"{what}: {CREATE_SECRET}; its parameter is {secret.parameter}")


def _look_at_nodes(wanted: Wanted, nodes: Sequence[Node] | None, found: Findings) -> None:
    lacking: dict[str, list[PodKind]] = {}
    for kind in wanted.pods if nodes is not None else ():
        if kind.accelerator:
            problem = _node_problem(kind, wanted.accelerator_type, int(wanted.accelerator_count), nodes or ())
            lacking.setdefault(problem, []).append(kind)
    lacking.pop("", None)
    for problem, kinds in lacking.items():
        about = found.notices if all(kind.scales_from_zero for kind in kinds) else found.problems
        about.append(f"{problem} (needed by {_shown([task for kind in kinds for task in kind.tasks])})")


def _node_problem(kind: PodKind, type_: str, count: int, nodes: Sequence[Node]) -> str:
    """Why no node will ever accept such a pod; "" if one does."""
    having = [node for node in nodes if node.allocatable.get(type_, 0) >= 1]
    if not having:
        others = sorted({name for node in nodes for name, many in node.allocatable.items() if "/" in name and many})
        others = [name for name in others if not name.startswith(("hugepages", "attachable-volumes"))]
        have = f"they have {', '.join(others)}" if others else "they have no accelerators"
        return (
            f"none of the cluster's {len(nodes)} nodes has {type_}; {have}: set `accelerator_type` to what a node has, "
            f"or install the GPU device plugin; {SCALES}"
        )
    large = [node for node in having if node.allocatable[type_] >= count]
    if not large:
        most = max(node.allocatable[type_] for node in having)
        return (
            f"no node has {count} {type_}; the largest has {most:g}: lower `accelerator_count`, and spread training "
            f"over several nodes (`nodes` of the placement); {SCALES}"
        )
    roomy = [
        node
        for node in large
        if node.allocatable.get("cpu", 0) >= amount(kind.cpu)
        and node.allocatable.get("memory", 0) >= amount(kind.memory)
    ]
    if not roomy:
        cores = max(node.allocatable.get("cpu", 0) for node in large)
        memory = max(node.allocatable.get("memory", 0) for node in large) / GIB
        return (
            f"no node with {count} {type_} has {kind.cpu} CPUs and {kind.memory} of memory; the largest have "
            f"{cores:g} CPUs and {memory:.1f}Gi: lower `cpu` and `memory` of the placement; {SCALES}"
        )
    chosen = [node for node in roomy if kind.node_selector.items() <= node.labels.items()]
    if not chosen:
        labels = ", ".join(f"{key}={value}" for key, value in kind.node_selector.items())
        return (
            f"no node with {count} {type_} has the labels {labels}: correct `node_selector` of the placement, or label "
            f"a node; {SCALES}"
        )
    hindered = [_hindering(node, kind) for node in chosen]
    if all(hindered):
        taints = ", ".join(sorted({taint for taints in hindered for taint in taints}))
        return (
            f"every node with {count} {type_} has a taint that keeps the pod out ({taints}): add it to `tolerations` "
            f"of the placement; {SCALES}"
        )
    return ""


def _hindering(node: Node, kind: PodKind) -> list[str]:
    """The node's taints that such a pod does not tolerate."""
    found = []
    for taint in node.taints:
        key, value, effect = taint["key"], taint.get("value", ""), taint["effect"]
        tolerated = any(
            one["key"] == key and one.get("value", "") in ("", value) and one.get("effect", "") in ("", effect)
            for one in kind.tolerations
        )
        if effect in HINDERING and not tolerated and not key.startswith(OWN_TAINTS):
            found.append(f"{key}={value}:{effect}" if value else f"{key}:{effect}")
    return found


def _shown(tasks: Sequence[str]) -> str:
    shown = ", ".join(tasks[:3])
    return shown if len(tasks) <= 3 else f"{shown} and {len(tasks) - 3} more"
