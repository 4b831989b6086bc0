"""Which steps of the whole graph a run does again."""

from __future__ import annotations

from stillhouse.pipeline.graph import SIMLM_STEPS

UNKNOWN = {"fetch_model", "fetch_generator", "fetch_reranker"}
"""Steps whose model is on a hub, so that it may be another one now. The outputs of their stand-ins stay the same, so
nothing after them runs again."""


def descendants(*names: str) -> set[str]:
    """The given steps and every step that reads, directly or not, what they write."""
    found = set(names)
    for step in SIMLM_STEPS:
        if any(source.split("/")[0] in found for source in step.inputs.values()):
            found.add(step.name)
    return found
