"""Which connections a set of network policies allows, by the rules of Kubernetes.

https://kubernetes.io/docs/concepts/services-networking/network-policies/: if no policy of a
direction selects a pod, the pod is open in that direction; otherwise, one policy that allows a connection is enough.
Both ends must allow it. Ports are those of pods: a service's port is translated before policies apply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Plain = Mapping[str, Any]
NAME_LABEL = "kubernetes.io/metadata.name"
"""The label that Kubernetes puts on every namespace."""


@dataclass(frozen=True)
class Peer:
    """A pod with its labels and those of its namespace. Without a namespace, an address outside the cluster."""

    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)


def lets_through(policies: Sequence[Plain], source: Peer, target: Peer, port: int, protocol: str = "TCP") -> bool:
    """Return whether the policies allow a connection from one pod to a port of another."""
    return _one_way(policies, "Egress", source, target, port, protocol) and _one_way(
        policies, "Ingress", target, source, port, protocol
    )


def _one_way(policies: Sequence[Plain], way: str, own: Peer, other: Peer, port: int, protocol: str) -> bool:
    holding = [
        policy["spec"]
        for policy in policies
        if own.namespace == policy["metadata"]["namespace"]
        and way in policy["spec"]["policyTypes"]
        and selects(policy["spec"]["podSelector"], own.labels)
    ]
    rules = [rule for spec in holding for rule in spec.get(way.lower(), [])]
    return not holding or any(_rule_lets(rule, way, own, other, port, protocol) for rule in rules)


def _rule_lets(rule: Plain, way: str, own: Peer, other: Peer, port: int, protocol: str) -> bool:
    known = {"ports", "to" if way == "Egress" else "from"}
    assert rule.keys() <= known, f"a rule has {rule.keys()}"
    peers = rule.get("to" if way == "Egress" else "from", [])
    ports = rule.get("ports", [])
    assert all(one.keys() <= {"protocol", "port"} for one in ports), "no ranges of ports are known here"
    return (not peers or any(_is_peer(peer, own, other) for peer in peers)) and (
        not ports or any(one.get("protocol", "TCP") == protocol and one["port"] == port for one in ports)
    )


def _is_peer(peer: Plain, own: Peer, other: Peer) -> bool:
    assert peer.keys() <= {"namespaceSelector", "podSelector"}, f"{peer.keys()} is not known here"
    if not other.namespace:
        return False  # selectors match only pods
    if "namespaceSelector" in peer:
        there = {NAME_LABEL: other.namespace} | dict(other.namespace_labels)
        here = selects(peer["namespaceSelector"], there)
    else:
        here = other.namespace == own.namespace
    return here and selects(peer.get("podSelector", {}), other.labels)


def selects(selector: Plain, labels: Mapping[str, str]) -> bool:
    """Return whether a label selector matches these labels. An empty selector matches everything."""
    assert selector.keys() <= {"matchLabels", "matchExpressions"}
    return selector.get("matchLabels", {}).items() <= labels.items() and all(
        _holds(expression, labels) for expression in selector.get("matchExpressions", [])
    )


def _holds(expression: Plain, labels: Mapping[str, str]) -> bool:
    key, values = expression["key"], expression.get("values", [])
    held = {
        "Exists": key in labels,
        "DoesNotExist": key not in labels,
        "In": labels.get(key) in values,
        "NotIn": key not in labels or labels[key] not in values,
    }
    return held[expression["operator"]]
