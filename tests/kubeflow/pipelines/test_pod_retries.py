"""The first process of a task's pod restarts the task's own process after a crash, which kfp's retries cannot do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stillhouse.kubeflow.pipelines.place import _call_in_the_pod
from stillhouse.kubeflow.pipelines.placement import Placement
from stillhouse.kubeflow.pipelines.stage_component import written
from stillhouse.kubeflow.pods import pod_retries


def start(folder: Path, program: str, retries: int, pause: float = 0.01, **more: str) -> subprocess.Popen[str]:
    """Start `program` as the module `work` with the argument `given`. In it, `number` is the number of the try."""
    count = (
        "import os, signal, subprocess, sys, time\n"
        "tries = open('tries', 'a+'); tries.write(sys.argv[1] + chr(10)); tries.flush()\n"
        "tries.seek(0); number = len(tries.readlines())\n"
    )
    (folder / "work.py").write_text(count + program)
    path = os.pathsep.join([str(folder), str(Path(pod_retries.__file__).parents[3])])
    program = (
        f"import sys; from {pod_retries.__name__} import Tries; "
        f"sys.exit(Tries([sys.executable, '-m', 'work', 'given'], {retries}, {pause}).run())"
    )
    words = [sys.executable, "-c", program]
    environment = os.environ | {"PYTHONPATH": path} | more
    return subprocess.Popen(words, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


def tries(folder: Path) -> list[str]:
    path = folder / "tries"
    return path.read_text().splitlines() if path.exists() else []


def end(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    """Wait for the process, and return its exit code and its lines about retries."""
    _, said = process.communicate(timeout=60)
    return process.returncode, [line for line in said.splitlines() if line.startswith("[retries]")]


def wait_for(folder: Path, name: str) -> None:
    for _ in range(600):
        if (folder / name).exists():
            return
        time.sleep(0.05)
    raise AssertionError(f"no {name}")


@pytest.mark.parametrize("failure", ["sys.exit(1)", "raise OSError", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_crash_is_retried_until_it_succeeds(failure: str, tmp_path: Path) -> None:
    code, said = end(start(tmp_path, f"if number < 3:\n    {failure}\n", retries=3))
    assert (code, tries(tmp_path), len(said)) == (0, ["given"] * 3, 2)
    assert "try 1 of 4 ended with" in said[0] and "try 2 of 4 ended with" in said[1]


def test_the_bound_and_the_pauses_are_the_placement_s(tmp_path: Path) -> None:
    began = time.monotonic()
    code, said = end(start(tmp_path, "sys.exit(1)", retries=2, pause=0.3))
    assert (code, tries(tmp_path)) == (1, ["given"] * 3)
    assert time.monotonic() - began >= 0.3 + 0.6
    assert "the next one starts in 0.3 s" in said[0] and "the next one starts in 0.6 s" in said[1]


@pytest.mark.parametrize("code", [2, 3, 4, 130])
def test_bad_input_refusals_and_interrupts_are_not_retried(code: int, tmp_path: Path) -> None:
    assert end(start(tmp_path, f"sys.exit({code})", retries=3)) == (code, [])
    assert tries(tmp_path) == ["given"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_process_and_ends_the_tries(number: signal.Signals, tmp_path: Path) -> None:
    program = (
        "def end(*given):\n    open('orderly', 'w'); sys.exit(1)\n"
        "signal.signal(signal.SIGTERM, end); signal.signal(signal.SIGINT, end)\n"
        "open('ready', 'w'); time.sleep(60)\n"
    )
    process = start(tmp_path, program, retries=3)
    wait_for(tmp_path, "ready")
    process.send_signal(number)
    assert end(process) == (1, []) and (tmp_path / "orderly").exists() and tries(tmp_path) == ["given"]


def test_processes_left_by_a_killed_try_are_ended(tmp_path: Path) -> None:
    """torchrun's workers each have their own session. Left alive, they would hold the GPUs and write checkpoints."""
    program = (
        "if number == 1:\n"
        "    left = subprocess.Popen(['sleep', '60'], stderr=subprocess.DEVNULL, start_new_session=True)\n"
        "    open('left', 'w').write(str(left.pid))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "sys.exit(7 if os.path.exists('/proc/' + open('left').read()) else 0)\n"
    )
    assert end(start(tmp_path, program, retries=1))[0] == 0


TRAINING = """
from pathlib import Path
import torch
from stillhouse.core.context import Context
from stillhouse.training import loop
from stillhouse.training.settings import TrainingConfig

loop.SECONDS_BETWEEN_CHECKPOINTS = 0.0

def train(folder, kill_at, began):
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    def loss(step):
        if step == kill_at and number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        began.append(step)
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        return ((model(inputs) - inputs.sum(1, keepdim=True)) ** 2).mean()
    Path(folder).mkdir(exist_ok=True)
    config = TrainingConfig(learning_rate=0.1, precision="fp32", eval_steps=3)
    loop.train(model, loss, lambda: float(model.weight.sum()), 8, config, Context(Path(folder), "cpu", quiet=True))
    return model.weight

resumed, calm = [], []
assert torch.equal(train("work", 5, resumed), train("calm", None, calm))
assert (resumed, calm) == ([5, 6, 7], list(range(8))), (resumed, calm)
"""


def test_a_killed_training_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    process = start(tmp_path, TRAINING, retries=1, OMP_NUM_THREADS="1")
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert "try 1 of 2 ended with SIGKILL" in said and len(tries(tmp_path)) == 2


WORK = """
import os
from pathlib import Path

from stillhouse.kubeflow.pods.in_pod import one_line_errors

def work(name, values):
    number = 1 + len(list(Path(values["folder"].path).parent.glob("tried*")))
    Path(values["folder"].path).with_name(f"tried-{number}").touch()
    with one_line_errors():
        if number == 1:
            os.kill(os.getpid(), 9)
        if number == 2:
            raise RuntimeError("no luck")
        labels = f"{os.environ['STILLHOUSE_PIPELINE']}/{os.environ['STILLHOUSE_TASK']}"
        values["folder"].metadata["seed"] = values["seed"]
        Path(values["folder"].path).write_text(Path(values["corpus"].path).read_text() + name + labels)
        Path(values["plan"]).write_text(str(type(values["corpus"]).__name__))
        return values["text"] + f" {values['status'].state}"
"""


def test_a_compiled_task_s_pod_tries_again_and_hands_on_what_kfp_s_executor_would(tmp_path: Path) -> None:
    """Runs the commands of Kubeflow's launcher for one component: that of kfp, and that which a placed task gets."""
    declared = ["text: str", "seed: int", "corpus: Input[Model]", "folder: Output[Dataset]", "plan: OutputPath(str)"]
    declared.append("status: PipelineTaskFinalStatus")
    component = written("work", declared, "stillhouse.kubeflow.pods.work", "work", "a-name", "str")
    plain = list(component.pipeline_spec.deployment_spec["executors"]["exec-work"]["container"]["command"])
    task = SimpleNamespace(container_spec=SimpleNamespace(command=plain, args=["--executor_input", "{{$}}", "more"]))
    _call_in_the_pod(task, Placement(retries=2, retry_after_seconds=0), "train", "corpus")
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
    for name, words, tries in (("kfp", kfp, 3), ("placed", placed, 1)):
        own = tmp_path / name
        own.mkdir()
        given = json.dumps(executor_input(tmp_path / "corpus", own))
        asked = {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
        asked |= {"STILLHOUSE_PIPELINE": "train", "STILLHOUSE_TASK": "corpus"} if name == "kfp" else {}
        asked["PYTHONPATH"] = os.pathsep.join([str(tmp_path), str(Path(pod_retries.__file__).parents[3])])
        for number in range(tries):
            done = subprocess.run(
                [word.replace("{{$}}", given) for word in words],
                env=os.environ | asked,
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert (done.returncode == 0) == (number == tries - 1), done.stderr
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
