"""Runs some steps of a task of a compiled pipeline as Kubeflow's launcher does: the container's own command, with JSON.

python task.py PIPELINE.yaml TASK STEP,STEP FOLDER
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml


def run(pipeline: Path, task: str, uses: list[str], folder: Path) -> None:
    """Runs steps of a task that need no artifacts, with the run's defaults; their outputs must be there afterwards."""
    [version] = [one for one in yaml.safe_load_all(pipeline.read_text()) if one["kind"] == "PipelineVersion"]
    spec = version["spec"]["pipelineSpec"]
    component = spec["components"][f"comp-{task}"]
    container = spec["deploymentSpec"]["executors"][component["executorLabel"]]["container"]
    artifacts = component["outputDefinitions"]["artifacts"]
    given = executor_input(parameters_of(spec, task, uses), artifacts, folder)
    words = [word.replace("{{$}}", json.dumps(given)) for word in [*container["command"], *container["args"]]]
    subprocess.run(words, check=True)
    for name in artifacts:
        if name.partition("__")[0] in (*uses, "metrics", "page"):
            assert (folder / name).exists(), f"{task} wrote no {name}"
    assert (folder / "executor_output.json").is_file()


def parameters_of(spec: dict[str, Any], task: str, uses: list[str]) -> dict[str, Any]:
    """What the task is given in a run with the pipeline's defaults, of its steps these alone."""
    defaults = spec["root"]["inputDefinitions"]["parameters"]
    graphs = (component["dag"] for component in spec["components"].values() if "dag" in component)
    [given] = [graph["tasks"][task]["inputs"]["parameters"] for graph in graphs if task in graph["tasks"]]
    steps = json.loads(given["steps"]["runtimeValue"]["constant"])
    parameters: dict[str, Any] = {"run_id": "check", "steps": json.dumps({use: steps[use] for use in uses})}
    for name in spec["components"][f"comp-{task}"]["inputDefinitions"]["parameters"].keys() - parameters.keys():
        entry = defaults[given[name]["componentInputParameter"].removeprefix("pipelinechannel--")]
        # The compiler writes a whole number as 0.0; the backend hands it out as 0.
        whole = entry["parameterType"] == "NUMBER_INTEGER"
        parameters[name] = int(entry["defaultValue"]) if whole else entry["defaultValue"]
    return parameters


def executor_input(parameters: dict[str, Any], artifacts: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What the launcher hands to a task's program."""
    outputs = {
        name: {"artifacts": [{"name": name, "type": entry["artifactType"], "uri": str(folder / name), "metadata": {}}]}
        for name, entry in artifacts.items()
    }
    return {
        "inputs": {"parameterValues": parameters},
        "outputs": {"artifacts": outputs, "outputFile": str(folder / "executor_output.json")},
    }


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2], sys.argv[3].split(","), Path(sys.argv[4]))
