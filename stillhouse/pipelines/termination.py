"""A run that was terminated, and that Argo leaves running all the same: how long to wait for its end, and what to do.

docs/reference/kubeflow-facts.md says how this was seen.
"""

from __future__ import annotations

CANCELING = "CANCELING"
"""The state of a run from when it is terminated until Argo has ended it."""
LONGEST_SECONDS = 600
"""How long the end of a terminated run is waited for. Its pods have 30 seconds."""


def remedy(run_id: str) -> str:
    """What to do about a run that does not end."""
    return (
        f"Argo may leave a terminated run running for good: `kubectl -n NAMESPACE get pods -l pipeline/runid={run_id}` "
        f"shows whether a pod of it is left, and `kfp run delete {run_id}` removes the run and its workflow"
    )
