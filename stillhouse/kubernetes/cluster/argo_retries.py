"""Which pods Argo retries on a cluster, in addition to the retries inside a pod, and what that means for a run.

KFP compiles the number of retries but no policy, so Argo's own settings decide
(`docs/reference/kubeflow-facts.md`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

CONFIG_MAP = "workflow-controller-configmap"
NAMESPACE = "kubeflow"
"""Where Kubeflow installs Argo; a single-user installation has its runs there too."""
SHIPPED = "OnError"
"""The policy that Kubeflow Pipelines installs: Argo retries pods that vanished, but not pods that failed."""
ARGOS_OWN = "OnFailure"
"""The policy if Argo's settings name none."""
_TWICE = (
    "a failed pod is replaced by new pods, each with its own retries, so a crash is retried up to `retries` times "
    "`retries`"
)
_LOST = "a pod that was preempted, drained or deleted is not replaced, and the run fails"
MEANING = {ARGOS_OWN: f"{_TWICE}; {_LOST}", "Always": _TWICE, "OnTransientError": _LOST}
REMEDY = (
    f"set `retryPolicy: {SHIPPED}` in {CONFIG_MAP}, under workflowDefaults.spec.templateDefaults.retryStrategy, as "
    "Kubeflow Pipelines does"
)


def policy_of(config_map: Mapping[str, Any]) -> str:
    """The policy of a template without one, from Argo's settings. Raises `ValueError` for damaged settings."""
    data = config_map.get("data") or {}
    try:
        # Each setting has its own key, or one text holds all of them.
        whole = yaml.safe_load(data.get("config") or "") or {}
        defaults = yaml.safe_load(data.get("workflowDefaults") or "") or whole.get("workflowDefaults") or {}
        found: Any = defaults
        for name in ("spec", "templateDefaults", "retryStrategy", "retryPolicy"):
            found = (found or {}).get(name)
    except (yaml.YAMLError, AttributeError) as error:
        raise ValueError(f"{CONFIG_MAP} cannot be read: {error}") from None
    return str(found or ARGOS_OWN)


def notice_of(policy: str) -> str:
    """What the user should know about a policy; empty for the one that Kubeflow ships."""
    if policy == SHIPPED:
        return ""
    means = MEANING.get(policy, "Stillhouse does not know this policy")
    return f"Argo's retryPolicy is {policy} on this cluster: {means}; {REMEDY}"
