"""A terminated run that Argo nevertheless leaves running: how long to wait for its end, and what to do.

docs/reference/kubeflow-facts.md describes how this was observed.
"""

from __future__ import annotations

from stillhouse.kubeflow.trainjob.own_pod import RUN_LABEL

CANCELING = "CANCELING"
"""The state of a run between its termination and its end in Argo."""
LONGEST_SECONDS = 600
"""How long to wait for the end of a terminated run. Its pods have 30 seconds."""


def remedy(run_id: str) -> str:
    """What to do about a run that does not end."""
    return (
        f"Argo may leave a terminated run running forever: `kubectl -n NAMESPACE get pods -l {RUN_LABEL}={run_id}` "
        f"shows whether it has pods left, and `kfp run delete {run_id}` removes the run and its workflow"
    )
