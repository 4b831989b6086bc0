"""A task's pod calls the component's function in the image, and hands on what kfp's executor would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from stillhouse.kubeflow.pipelines.place import call_in_the_pod
from stillhouse.kubeflow.pipelines.stage_component import written

ROOT = Path(__file__).resolve().parents[3]

WORK = """
import os
from pathlib import Path

from stillhouse.kubeflow.pods.process import one_line_errors

def work(name, values):
    with one_line_errors():
        labels = f"{os.environ['STILLHOUSE_PIPELINE']}/{os.environ['STILLHOUSE_TASK']}"
        values["folder"].metadata["seed"] = values["seed"]
        Path(values["folder"].path).write_text(Path(values["corpus"].path).read_text() + name + labels)
        Path(values["plan"]).write_text(str(type(values["corpus"]).__name__))
        return values["text"] + f" {values['status'].state}"
"""


def test_a_compiled_task_s_pod_hands_on_what_kfp_s_executor_would(tmp_path: Path) -> None:
    """Runs the commands of Kubeflow's launcher for one component: that of kfp, and that which a placed task gets."""
    declared = ["text: str", "seed: int", "corpus: Input[Model]", "folder: Output[Dataset]", "plan: OutputPath(str)"]
    declared.append("status: PipelineTaskFinalStatus")
    component = written("work", declared, "stillhouse.kubeflow.pods.work", "work", "a-name", "str")
    plain = list(component.pipeline_spec.deployment_spec["executors"]["exec-work"]["container"]["command"])
    task = SimpleNamespace(container_spec=SimpleNamespace(command=plain, args=["--executor_input", "{{$}}", "more"]))
    call_in_the_pod(task, "train", "corpus")
    placed = [*task.container_spec.command, *task.container_spec.args]
    kfp = [*plain, "--executor_input", "{{$}}", "--function_to_execute", "work"]

    (tmp_path / "work.py").write_text(WORK)
    (tmp_path / "sitecustomize.py").write_text(
        "import sys, types\n"
        "module = sys.modules['stillhouse.kubeflow.pods.work'] = types.ModuleType('work')\n"
        f"exec(open({str(tmp_path / 'work.py')!r}).read(), module.__dict__)\n"
    )
    (tmp_path / "corpus").write_text("ships ")
    found = []
    for name, words in (("kfp", kfp), ("placed", placed)):
        own = tmp_path / name
        own.mkdir()
        given = json.dumps(executor_input(tmp_path / "corpus", own))
        asked = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
        asked |= {"STILLHOUSE_PIPELINE": "train", "STILLHOUSE_TASK": "corpus"} if name == "kfp" else {}
        asked["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(ROOT)])
        words = [word.replace("{{$}}", given) for word in words]
        done = subprocess.run(words, env=os.environ | asked, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        written_files = [(own / part).read_text() for part in ("folder", "plan", "executor_output.json")]
        found.append([text.replace(str(own), "") for text in written_files])
    assert found[0] == found[1]
    assert found[0][:2] == ["ships a-nametrain/corpus", "Model"] and '"text COMPLETE"' in found[0][2]


def executor_input(corpus: Path, own: Path) -> dict[str, Any]:
    """What Kubeflow's launcher hands to a task, with its own parameters among those of the pipeline."""

    def artifact(path: Path, kind: str) -> dict[str, Any]:
        return {"artifacts": [{"name": path.name, "type": {"schemaTitle": kind}, "uri": str(path), "metadata": {}}]}

    values = {"text": "text", "seed": 3, "status": {"state": "COMPLETE"}, "pipelinechannel--image": "x"}
    return {
        "inputs": {"parameterValues": values, "artifacts": {"corpus": artifact(corpus, "system.Model")}},
        "outputs": {
            "parameters": {name: {"outputFile": str(own / name)} for name in ("Output", "plan")},
            "artifacts": {"folder": artifact(own / "folder", "system.Dataset")},
            "outputFile": str(own / "executor_output.json"),
        },
    }
