"""Which pods Argo tries again on a cluster, beside what a step's own pod does, and what that means for a run.

KFP compiles how often a task is tried again and no policy, so that Argo's own settings decide
(`docs/reference/kubeflow-facts.md`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

CONFIG_MAP = "workflow-controller-configmap"
NAMESPACE = "kubeflow"
"""Where Kubeflow installs Argo; where it serves one user, runs are there too."""
SHIPPED = "OnError"
"""What Kubeflow Pipelines installs: pods that vanished are tried again, pods that failed are not."""
ARGOS_OWN = "OnFailure"
"""What holds where Argo's settings say nothing."""
_TWICE = (
    "a pod that failed gets new pods, each with as many tries of its own, so that a crash is tried again up to "
    "`retries` times `retries`"
)
_LOST = "a pod that was preempted, drained or deleted gets no new one, and the run fails"
MEANING = {ARGOS_OWN: f"{_TWICE}; {_LOST}", "Always": _TWICE, "OnTransientError": _LOST}
REMEDY = (
    f"set `retryPolicy: {SHIPPED}` in {CONFIG_MAP}, under workflowDefaults.spec.templateDefaults.retryStrategy, as "
    "Kubeflow Pipelines does"
)


def policy_of(config_map: Mapping[str, Any]) -> str:
    """The policy that holds for a template without one, from Argo's settings. Raises `ValueError` for damaged ones."""
    data = config_map.get("data") or {}
    try:
        # Settings stand each under its own key, or all in one text.
        whole = yaml.safe_load(data.get("config") or "") or {}
        defaults = yaml.safe_load(data.get("workflowDefaults") or "") or whole.get("workflowDefaults") or {}
        found: Any = defaults
        for name in ("spec", "templateDefaults", "retryStrategy", "retryPolicy"):
            found = (found or {}).get(name)
    except (yaml.YAMLError, AttributeError) as error:
        raise ValueError(f"{CONFIG_MAP} cannot be read: {error}") from None
    return str(found or ARGOS_OWN)


def notice_of(policy: str) -> str:
    """What a person should know of a policy; empty for the one that Kubeflow ships."""
    if policy == SHIPPED:
        return ""
    means = MEANING.get(policy, "what Stillhouse knows nothing of")
    return f"Argo's retryPolicy is {policy} on this cluster: {means}; {REMEDY}"
