"""How a run ended, by the word that its last task is given for the state of all tasks before it.

Two enumerations are in use. Kubeflow's own backend hands on the state of ML Metadata (`Execution.State`), in which a
success is `COMPLETE`; kfp's local runner and the documentation use that of Kubeflow's API (`RuntimeState`), in which it
is `SUCCEEDED`. docs/reference/kubeflow-facts.md says how this was seen.
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
    # Of `Execution.State`, with those that are the same in `RuntimeState`.
    "UNKNOWN": RunEnd.UNKNOWN,
    "NEW": RunEnd.UNKNOWN,
    "RUNNING": RunEnd.UNKNOWN,
    "COMPLETE": RunEnd.SUCCEEDED,
    "FAILED": RunEnd.FAILED,
    "CACHED": RunEnd.SUCCEEDED,
    "CANCELED": RunEnd.CANCELED,
    # Of `RuntimeState` alone.
    "RUNTIME_STATE_UNSPECIFIED": RunEnd.UNKNOWN,
    "PENDING": RunEnd.UNKNOWN,
    "SUCCEEDED": RunEnd.SUCCEEDED,
    "SKIPPED": RunEnd.UNKNOWN,
    "CANCELING": RunEnd.CANCELED,
    "PAUSED": RunEnd.UNKNOWN,
    # As kfp's documentation of `PipelineTaskFinalStatus` spells it.
    "CANCELLED": RunEnd.CANCELED,
}
"""`RUNNING` leaves it open: a group of tasks stays in it for ever when a condition skipped one of them, and also when
a pod was killed before it could report its failure."""


def run_end(state: str) -> RunEnd:
    """How a run ended that is in this state; `UNKNOWN` for a state that leaves it open, or that is not in the table."""
    return STATES.get(state, RunEnd.UNKNOWN)
