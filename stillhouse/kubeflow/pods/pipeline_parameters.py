"""The parameters of a Kubeflow run, as seen by the process of a task.

Kubeflow can put a pipeline's parameters into images, volumes and resource amounts, but not into environment variables.
It does pass a task's inputs to kfp's executor on the command line of the task's process, so pipelines turn the
parameters that the process needs into inputs (`pipelines/place.py`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from stillhouse.core.errors import InputError

EXECUTOR_INPUT = "--executor_input"
CHANNEL = "pipelinechannel--"
"""The prefix that kfp gives a pipeline's parameter among a task's inputs."""
COUNT = "accelerator_count"
TYPE = "accelerator_type"


def pipeline_parameters(command_line: Sequence[str]) -> dict[str, Any]:
    """The pipeline's parameters among the inputs of kfp's executor; empty in any other process."""
    words = list(command_line)
    if EXECUTOR_INPUT not in words[:-1]:
        return {}
    given = json.loads(words[words.index(EXECUTOR_INPUT) + 1])
    values = given.get("inputs", {}).get("parameterValues", {})
    return {name.removeprefix(CHANNEL): value for name, value in values.items() if name.startswith(CHANNEL)}


def accelerator_count(chosen: dict[str, Any], default: int) -> int:
    """How many accelerators a pod of the run has. Raises `InputError` for an invalid count."""
    count = str(chosen.get(COUNT, default))
    if not count.isdecimal() or int(count) < 1:
        raise InputError(f"{COUNT} is {count!r}; use a whole number of at least 1")
    return int(count)
