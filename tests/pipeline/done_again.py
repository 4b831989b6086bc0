"""Which uses of the whole graph a run does again."""

from __future__ import annotations

from stillhouse.pipeline.graph import USES

UNKNOWN = {"fetch_model", "fetch_generator", "fetch_reranker"}
"""Uses whose model is on a hub, so that it may be another one now. The outputs of their stand-ins stay the same, so
nothing after them runs again."""


def descendants(*names: str) -> set[str]:
    """The given uses and every use that reads, directly or not, what they write."""
    found = set(names)
    for use in USES:
        if any(source.split("/")[0] in found for source in use.inputs.values()):
            found.add(use.name)
    return found
