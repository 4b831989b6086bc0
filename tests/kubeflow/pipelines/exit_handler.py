"""What a compiled pipeline runs inside its exit handler, which reports how the run ended."""

from __future__ import annotations

from typing import Any

Tasks = dict[str, dict[str, Any]]


def guarded_tasks(pipeline: dict[str, Any]) -> Tasks:
    """The tasks inside the exit handler, by label."""
    [handler] = [part for name, part in pipeline["components"].items() if name.startswith("comp-exit-handler")]
    return {task["taskInfo"]["name"]: task for task in handler["dag"]["tasks"].values()}
