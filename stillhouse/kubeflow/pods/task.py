"""Calls a task's function in its pod, with what Kubeflow hands to the pod.

    python3 -m stillhouse.kubeflow.pods.task PIPELINE TASK stage run_stage corpus --executor_input …

A component of kfp brings its source with it, which Argo would keep some ten times for each task of a run. The functions
are in the image, so the pods of our pipelines get their names, and kfp's executor does what it does for a component.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from inspect import Parameter, Signature
from typing import Any

from stillhouse.core.monitoring.settings import PIPELINE, TASK
from stillhouse.kubeflow.pods.pipeline_parameters import CHANNEL, EXECUTOR_INPUT

PACKAGE = "stillhouse.kubeflow.pods"
"""Where the modules with tasks' functions are."""
STATUS = "status"
"""The argument of a run's last task for which Kubeflow fills in how the others ended."""
RETURNED = "Output"
"""kfp's name for what a function returns."""


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


if __name__ == "__main__":
    main(sys.argv[1:])
