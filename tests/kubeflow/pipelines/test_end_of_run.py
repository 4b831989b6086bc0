"""The last task of a run, with the input from Kubeflow's backend, through kfp's own executor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kfp.dsl.executor import Executor

from stillhouse.kubeflow.pipelines.control import report_end


def ended(folder: Path, **status: Any) -> dict[str, Any]:
    """Run the last task, and return the title of its page and what it logged for Kubeflow.

    The backend of 2.17.0 marshals `PipelineTaskFinalStatus` with an `error` that is always empty, and leaves out
    fields that have their default.
    """
    outputs = {
        name: {"artifacts": [{"name": name, "type": {"schemaTitle": f"system.{kind}"}, "uri": str(folder / name)}]}
        for name, kind in (("summary", "Markdown"), ("metrics", "Metrics"))
    }
    given = {"pipelineTaskName": "exit-handler-1", "pipelineJobResourceName": "train-xyz", "error": {}} | status
    values = {"pipeline": "train", "run": "mine", "status": given}
    Executor(
        executor_input={
            "inputs": {"parameterValues": values},
            "outputs": {"artifacts": outputs, "outputFile": str(folder / "executor_output.json")},
        },
        function_to_execute=report_end().python_func,
    ).execute()
    made = json.loads((folder / "executor_output.json").read_text())
    logged = made["artifacts"]["metrics"]["artifacts"][0]["metadata"]
    return {"title": (folder / "summary").read_text().splitlines()[0], "logged": logged}


@pytest.mark.parametrize(
    ("state", "title", "logged"),
    [
        ("COMPLETE", "succeeded", {"succeeded": 1.0}),
        ("FAILED", "failed", {"succeeded": 0.0}),
        ("RUNNING", "unknown", {}),
    ],
)
def test_how_a_run_ended_by_the_state_of_the_backend(
    state: str, title: str, logged: dict[str, float], tmp_path: Path
) -> None:
    assert ended(tmp_path, state=state) == {"title": f"## train: {title}", "logged": logged}
