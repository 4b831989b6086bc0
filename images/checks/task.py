"""Runs the first task of a compiled pipeline and one after it, with their containers' own commands, as Kubeflow does.

python task.py PIPELINE.yaml TASK FOLDER
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

FIRST = "check"


def run(pipeline: Path, task: str, folder: Path) -> None:
    """Runs both with the run's defaults; their outputs must be there afterwards."""
    [version] = [one for one in yaml.safe_load_all(pipeline.read_text()) if one["kind"] == "PipelineVersion"]
    spec = version["spec"]["pipelineSpec"]
    graphs = (component["dag"] for component in spec["components"].values() if "dag" in component)
    [tasks] = [graph["tasks"] for graph in graphs if task in graph["tasks"]]
    for name in (FIRST, task):
        component = spec["components"][f"comp-{name}"]
        container = spec["deploymentSpec"]["executors"][component["executorLabel"]]["container"]
        given = json.dumps(executor_input(spec, component, tasks[name]["inputs"], folder / name, folder))
        subprocess.run(
            [word.replace("{{$}}", given) for word in [*container["command"], *container["args"]]], check=True
        )
        for output in component["outputDefinitions"]["artifacts"]:
            assert (folder / name / output).exists(), f"{name} wrote no {output}"
        assert (folder / name / "executor_output.json").is_file()


def executor_input(
    spec: dict[str, Any], component: dict[str, Any], inputs: dict[str, Any], own: Path, folder: Path
) -> dict[str, Any]:
    """What the launcher hands to a task's program, whose outputs go to `own`."""
    defaults, wanted = spec["root"]["inputDefinitions"]["parameters"], component["inputDefinitions"]
    parameters: dict[str, Any] = {}
    for name in wanted.get("parameters", {}):
        source = inputs["parameters"][name]
        if "runtimeValue" in source:
            parameters[name] = source["runtimeValue"]["constant"]
        elif "taskOutputParameter" in source:
            made = source["taskOutputParameter"]
            parameters[name] = (folder / made["producerTask"] / made["outputParameterKey"]).read_text()
        else:
            entry = defaults[source["componentInputParameter"].removeprefix("pipelinechannel--")]
            # The compiler writes a whole number as 0.0; the backend hands it out as 0.
            whole = entry["parameterType"] == "NUMBER_INTEGER"
            parameters[name] = int(entry["defaultValue"]) if whole else entry["defaultValue"]
    read = {name: inputs["artifacts"][name]["taskOutputArtifact"] for name in wanted.get("artifacts", {})}
    made = component["outputDefinitions"]
    return {
        "inputs": {
            "parameterValues": parameters,
            "artifacts": {
                name: artifact(folder / of["producerTask"] / of["outputArtifactKey"], wanted["artifacts"][name])
                for name, of in read.items()
            },
        },
        "outputs": {
            "parameters": {name: {"outputFile": str(own / name)} for name in made.get("parameters", {})},
            "artifacts": {name: artifact(own / name, entry) for name, entry in made["artifacts"].items()},
            "outputFile": str(own / "executor_output.json"),
        },
    }


def artifact(path: Path, entry: dict[str, Any]) -> dict[str, Any]:
    return {"artifacts": [{"name": path.name, "type": entry["artifactType"], "uri": str(path), "metadata": {}}]}


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
