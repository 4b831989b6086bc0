"""Reports which step a run has reached, and how long the rest will take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stillhouse.pipeline.run_times import estimate
from stillhouse.pipeline.uses import Use


def outlook(left: Sequence[Use], total: int, settings: Mapping[str, Any], root: Path) -> str:
    """The lines before a run: how many of its uses are `left`, and how long they take, in all and one by one."""
    found = estimate(left, settings, root)
    said, stages = f"{len(left)} of {total} steps to do: {found.total()}", found.stages()
    return "\n".join([f"{said}:", *stages] if stages else [said])


def position(number: int, total: int, left: Sequence[Use], settings: Mapping[str, Any], root: Path) -> str:
    """The line about the first of the uses that are `left`: its own time, and that of all of them."""
    found = estimate(left, settings, root)
    own, time = found.of(left[0].name), found.total()
    if len(left) > 1:
        time = (f"{own}; " if own else "") + found.total(" left in all")
    return f"step {number} of {total}: {left[0].name} ({left[0].step_name}), {time}"
