"""Runs one task of a compiled pipeline as Kubeflow's launcher does: the container's own command, its inputs as JSON.

python task.py PIPELINE.yaml TASK FOLDER
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml


def run(pipeline: Path, task: str, folder: Path) -> None:
    """Runs a task that needs no artifacts, with its defaults; its outputs must be there afterwards."""
    [version] = [one for one in yaml.safe_load_all(pipeline.read_text()) if one["kind"] == "PipelineVersion"]
    spec = version["spec"]["pipelineSpec"]
    component = spec["components"][f"comp-{task}"]
    container = spec["deploymentSpec"]["executors"][component["executorLabel"]]["container"]
    artifacts = component["outputDefinitions"]["artifacts"]
    given = executor_input(component["inputDefinitions"]["parameters"], artifacts, folder)
    words = [word.replace("{{$}}", json.dumps(given)) for word in [*container["command"], *container["args"]]]
    subprocess.run(words, check=True)
    for name in artifacts:
        assert (folder / name).exists(), f"{task} wrote no {name}"
    assert (folder / "executor_output.json").is_file()


def executor_input(parameters: dict[str, Any], artifacts: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What the launcher hands to a task's program."""
    outputs = {
        name: {"artifacts": [{"name": name, "type": entry["artifactType"], "uri": str(folder / name), "metadata": {}}]}
        for name, entry in artifacts.items()
    }
    # The compiler writes a whole number as 0.0; the backend hands it out as 0.
    values = {
        name: int(entry["defaultValue"]) if entry["parameterType"] == "NUMBER_INTEGER" else entry["defaultValue"]
        for name, entry in parameters.items()
    }
    return {
        "inputs": {"parameterValues": values},
        "outputs": {"artifacts": outputs, "outputFile": str(folder / "executor_output.json")},
    }


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
