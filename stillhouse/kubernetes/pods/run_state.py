"""How a run ended, from the state that its last task receives for all tasks before it.

Two enumerations are in use. Kubeflow's backend passes on the state of ML Metadata (`Execution.State`), where a success
is `COMPLETE`. kfp's local runner and the documentation use the state of Kubeflow's API (`RuntimeState`), where it is
`SUCCEEDED`. docs/reference/kubeflow-facts.md describes how this was observed.
"""

from __future__ import annotations

from enum import Enum


class RunEnd(Enum):
    """How a run ended. `UNKNOWN` is neither a success nor a failure."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    UNKNOWN = "unknown"


STATES = {
    # `Execution.State`, including the values that `RuntimeState` shares.
    "UNKNOWN": RunEnd.UNKNOWN,
    "NEW": RunEnd.UNKNOWN,
    "RUNNING": RunEnd.UNKNOWN,
    "COMPLETE": RunEnd.SUCCEEDED,
    "FAILED": RunEnd.FAILED,
    "CACHED": RunEnd.SUCCEEDED,
    "CANCELED": RunEnd.CANCELED,
    # Only `RuntimeState`.
    "RUNTIME_STATE_UNSPECIFIED": RunEnd.UNKNOWN,
    "PENDING": RunEnd.UNKNOWN,
    "SUCCEEDED": RunEnd.SUCCEEDED,
    "SKIPPED": RunEnd.UNKNOWN,
    "CANCELING": RunEnd.CANCELED,
    "PAUSED": RunEnd.UNKNOWN,
    # The spelling in kfp's documentation of `PipelineTaskFinalStatus`.
    "CANCELLED": RunEnd.CANCELED,
}
"""`RUNNING` leaves it open: a group of tasks stays in it forever if a condition skipped one of them, and also if a pod
was killed before it could report its failure."""


def run_end(state: str) -> RunEnd:
    """How a run in this state ended; `UNKNOWN` for a state that leaves it open or is not in the table."""
    return STATES.get(state, RunEnd.UNKNOWN)
