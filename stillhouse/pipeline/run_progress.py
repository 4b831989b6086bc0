"""Says before a run and before each of its steps what is left, and how long that takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stillhouse.core.monitoring.activity import by_stage, doing, in_words
from stillhouse.pipeline.graph import CORPUS, START
from stillhouse.pipeline.graph_steps import GraphStep
from stillhouse.pipeline.step_times import on_processor, scale_of, seconds_of


def outlook(left: Sequence[GraphStep], total: int, settings: Mapping[str, Any], root: Path) -> str:
    """The lines before a run: how many of its steps are `left`, and how long they take, in all and one by one."""
    said, seconds = f"{len(left)} of {total} steps to do", expected_seconds(left, settings, root)
    if not seconds:
        return said
    return "\n".join([f"{said}: about {in_words(sum(seconds.values()))} on this machine:", *by_stage(seconds)])


def position(number: int, total: int, left: Sequence[GraphStep], settings: Mapping[str, Any], root: Path) -> str:
    """The line before the first of the steps that are `left`: its own time, and that of all of them."""
    first, seconds = left[0], expected_seconds(left, settings, root)
    said = f"step {number} of {total}: {first.name} ({first.kind})"
    if not seconds:
        return said
    rest = f"; about {in_words(sum(seconds.values()))} left in all" if len(left) > 1 else ""
    return f"{said}, about {in_words(seconds[first.name])}{rest}"


@doing("estimating the time")
def expected_seconds(steps: Sequence[GraphStep], settings: Mapping[str, Any], root: Path) -> dict[str, float]:
    """The time of each step on this machine's CPU; empty on a GPU, and before a corpus and the base model exist.

    Before there is the corpus, the passages that a language model asks about stand for it.
    """
    asked = [step.inputs["corpus"] for step in steps if step.kind == "generate-queries"]
    scales = (scale_of(root / corpus, root / START) for corpus in (CORPUS["corpus"], *asked))
    scale = next(filter(None, scales), None) if steps and on_processor() else None
    if scale is None:
        return {}
    return seconds_of(steps, settings, scale)
