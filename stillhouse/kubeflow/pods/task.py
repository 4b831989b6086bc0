"""Calls a task's function in its pod, with what Kubeflow hands to the pod.

    python3 -m stillhouse.kubeflow.pods.task PIPELINE TASK stage run_stage corpus --executor_input …

A component of kfp brings its source with it, which Argo would keep some ten times for each task of a run. The functions
are in the image, so the pods of our pipelines get their names, and kfp's executor does what it does for a component.

Kubeflow can put a pipeline's parameters into images, volumes and resource amounts, but not into environment variables.
It does pass a task's inputs on the command line of the task's process, so pipelines turn the parameters that the
process needs into inputs (`pipelines/place.py`), and `pipeline_parameters` reads them there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from inspect import Parameter, Signature
from typing import Any

from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.settings import PIPELINE, TASK

PACKAGE = "stillhouse.kubeflow.pods"
"""Where the modules with tasks' functions are."""
STATUS = "status"
"""The argument of a run's last task for which Kubeflow fills in how the others ended."""
RETURNED = "Output"
"""kfp's name for what a function returns."""
EXECUTOR_INPUT = "--executor_input"
CHANNEL = "pipelinechannel--"
"""The prefix that kfp gives a pipeline's parameter among a task's inputs."""
COUNT = "accelerator_count"
TYPE = "accelerator_type"


def main(words: Sequence[str]) -> None:
    """Calls the function with the arguments before the executor's input, and a mapping of those in it.

    Before them are the labels of the task's metrics.
    """
    pipeline, task, module, function, *known, flag, text = words
    os.environ |= {PIPELINE: pipeline, TASK: task, "_KFP_RUNTIME": "true"}  # so kfp imports only what a task needs
    from kfp.dsl import Artifact, Input, Output, OutputPath, PipelineTaskFinalStatus
    from kfp.dsl.executor import Executor

    assert flag == EXECUTOR_INPUT, words
    given = json.loads(text)
    read, written = given.get("inputs", {}), given["outputs"]
    hints: dict[str, Any] = {
        name: PipelineTaskFinalStatus if name == STATUS else str
        for name in read.get("parameterValues", {})
        if not name.startswith(CHANNEL)
    }
    hints |= dict.fromkeys(read.get("artifacts", {}), Input[Artifact])
    hints |= dict.fromkeys(written.get("artifacts", {}), Output[Artifact])
    hints |= dict.fromkeys(written.get("parameters", {}), OutputPath(str))
    returns = {"return": str} if hints.pop(RETURNED, None) else {}

    def call(**values: Any) -> Any:
        return getattr(import_module(f"{PACKAGE}.{module}"), function)(*known, values)

    parameters = [Parameter(name, Parameter.KEYWORD_ONLY, annotation=hint) for name, hint in hints.items()]
    call.__annotations__ = hints | returns
    call.__signature__ = Signature(  # type: ignore[attr-defined]
        parameters, return_annotation=returns.get("return", Signature.empty)
    )
    Executor(given, call).execute()


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


if __name__ == "__main__":
    main(sys.argv[1:])
