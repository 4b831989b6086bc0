"""The messages of Kubernetes, Argo and Kueue about a pod that cannot start, and what to do about them.

Each row recognises a message by a pattern; `{0}` and `{1}` are the groups of the match. The patterns fit Kubernetes
1.30 to 1.37 and Kueue 0.10 to 0.20, whose messages change little. A message that no row recognises is shown unchanged.
"""

from __future__ import annotations

import re

CREATE_CLAIM = (
    "create it in the run's namespace (volumes.yaml in manifests/base or manifests/overlays/gpu has it), or give the "
    "run the name of an existing one"
)
CREATE_SECRET = (
    "create it in the run's namespace with `kubectl create secret generic` (docs/deploy.md lists the keys), or give "
    "the run the name of an existing one"
)
CREATE_QUEUE = (
    "create it (manifests/components/kueue), or set `queue` in the placements to one of `kubectl get localqueues`"
)
WAITS = "it starts when other pods end"

ROWS: tuple[tuple[str, str, str], ...] = (
    # The scheduler, about volumes.
    (r'persistentvolumeclaim "([^"]+)" not found', "volume claim {0} does not exist", CREATE_CLAIM),
    (
        r"unbound immediate PersistentVolumeClaims",
        "its volume claim has no volume",
        "`kubectl describe pvc` says why: a missing storage class, or one that does not support the access mode",
    ),
    # The scheduler, about nodes.
    (
        r"Insufficient ([A-Za-z0-9.-]+/[A-Za-z0-9._-]+[A-Za-z0-9])",
        "no node has enough {0} free",
        f"{WAITS}; if no node has that many at all, use another `accelerator_type` or a lower `accelerator_count`",
    ),
    (
        r"Insufficient (cpu|memory|ephemeral-storage)\b",
        "no node has enough {0} free",
        f"{WAITS}; if no node has that much at all, lower the placement's request, or add a larger node",
    ),
    (
        r"didn't match Pod's node affinity/selector",
        "nodes lack the labels that it requires",
        "correct `node_selector` of the placement, or label a node",
    ),
    (
        r"untolerated taint \{((?!node-role\.kubernetes\.io/|node\.kubernetes\.io/)[^}]+)\}",
        "nodes have the taint {0}, which the pod does not tolerate",
        "add it to `tolerations` of the placement if it should run on those nodes",
    ),
    (
        r"untolerated taint \{(node\.kubernetes\.io/[^}]+)\}|node\(s\) were unschedulable",
        "nodes are not ready, full, or cordoned",
        "`kubectl describe nodes` shows which; `kubectl uncordon` lets a node accept pods again",
    ),
    # The kubelet.
    (r'secret "([^"]+)" not found', "secret {0} does not exist", CREATE_SECRET),
    (
        r"couldn't find key (\S+) in Secret (?:\S+/)?([^\s/]+)|references non-existent secret key: (\S+)",
        "its secret lacks the key {key}",
        "add the key to the secret, or correct `keys` of the placement",
    ),
    (
        r'configmap "([^"]+)" not found',
        "config map {0} does not exist",
        "Kubeflow Pipelines creates `kfp-launcher` in a namespace that its profile controller knows; create it there",
    ),
    # Refusals to create a pod at all.
    (
        r"exceeded quota: ([^,\s]+), requested: (\S+), used: (\S+), limited: (\S+)",
        "quota {0} is exhausted: {1} requested, {2} of {3} used",
        f"{WAITS}; if a single pod requests more than the limit, raise the ResourceQuota or lower its placement",
    ),
    (
        r'serviceaccount "?([^"\s]+)"? (?:was )?not found|error looking up service account [^/]*/([^:\s]+)',
        "its service account does not exist",
        "give the run `--service-account stillhouse-steps`, which manifests/base makes",
    ),
    # Kueue, in the condition QuotaReserved of a workload.
    (r"LocalQueue (\S+) (?:doesn't|does not) exist", "Kueue has no LocalQueue {0} in this namespace", CREATE_QUEUE),
    (
        r"insufficient quota for (\S+) in flavor .*?> maximum capacity \(([^)]+)\)",
        "it requests more {0} than its queue can ever provide ({1})",
        "raise `nominalQuota` of the ClusterQueue, or lower the placement's request",
    ),
    (
        r"insufficient unused quota for (\S+) in flavor|borrowing limit for (\S+) in flavor",
        "its queue has no quota left now",
        "it starts when other work in the queue ends, or with a higher `nominalQuota` or `priority`",
    ),
)


IMAGE_ROWS: tuple[tuple[str, str, str], ...] = (
    (
        r"(?i)unauthorized|authentication required|access denied|pull access|403 Forbidden|no basic auth",
        "the registry refuses the image",
        "give the run's service account a pull secret (`imagePullSecrets`), or use an image that it may pull",
    ),
    (
        r"(?i)manifest unknown|not found: manifest|manifest.* not found|failed to resolve reference .*: not found",
        "the registry has no such image",
        "push it, or name an existing one by its digest (`image`)",
    ),
    (
        r"(?i)no such host|i/o timeout|connection refused|dial tcp|TLS handshake",
        "the nodes cannot reach it",
        "correct the name of the registry in `image`, or give the nodes access to it",
    ),
    (
        r"is not present with pull policy of Never|ErrImageNeverPull",
        "the node has no such image",
        "load it onto every node, or give one in a registry by its digest (`image`)",
    ),
    (
        r"(?i)invalid reference format|couldn't parse image",
        "this is not a valid image name",
        "write REGISTRY/NAME@sha256:…",
    ),
    (
        r"^ImagePullBackOff: Back-off pulling image \S+$",
        "it could not be pulled",
        "make sure that the registry has an image with this digest and lets the nodes pull it",
    ),
)
"""The same for images: registries also say `not found` and `connection refused`."""
OF_IMAGES = re.compile(r"(?i)pull|ErrImage|InvalidImageName|parse image")


def explain(words: str) -> tuple[str, str]:
    """The causes that a message names, joined into a clause, and the remedies; both empty for an unknown message."""
    causes, remedies = [], []
    for pattern, cause, remedy in IMAGE_ROWS if OF_IMAGES.search(words) else ROWS:
        match = re.search(pattern, words)
        if match:
            groups = [group or "" for group in match.groups()]
            key = next((group for group in groups if group), "")
            causes.append(cause.format(*groups, key=key.strip(" ,.")))
            remedies.append(remedy)
    return ", and ".join(dict.fromkeys(causes)), "; ".join(dict.fromkeys(remedies))


def with_remedy(words: str) -> str:
    """A message, with its remedy if that is known."""
    _, remedy = explain(words)
    return f"{words}: {remedy}" if remedy else words
