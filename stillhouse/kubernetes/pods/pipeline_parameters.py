"""The parameters of a Kubeflow run, as the process of one of its tasks can know them.

Kubeflow fills a pipeline's parameters into an image, a volume or an amount of resources, but into no environment
variable. It does hand a task's inputs to kfp's own executor, on the command line of the task's process, and pipelines
make inputs of the parameters that the process has to know (`pipelines/place.py`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from stillhouse.errors import InputError

EXECUTOR_INPUT = "--executor_input"
CHANNEL = "pipelinechannel--"
"""How kfp names a pipeline's parameter among a task's inputs."""
COUNT = "accelerator_count"
TYPE = "accelerator_type"
RUN_CACHE_PARAMETER = "run_cache"


def pipeline_parameters(command_line: Sequence[str]) -> dict[str, Any]:
    """The pipeline's parameters that a task reads, as kfp's executor was given them; none in another process."""
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
        raise InputError(f"{COUNT} is {count!r}; give a whole number from 1")
    return int(count)
