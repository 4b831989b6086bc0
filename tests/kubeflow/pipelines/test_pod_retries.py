# No `from __future__ import annotations` here: kfp reads the types of the signatures as they stand.
"""The first process of a task's pod restarts the task's own process after a crash, which kfp's retries cannot do."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from kfp import compiler, dsl

from stillhouse.kubeflow.pipelines.place import place
from stillhouse.kubeflow.pipelines.placement import Placement
from stillhouse.kubeflow.pods import pod_retries

POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}


def start(folder: Path, program: str, retries: int, pause: float = 0.01, **more: str) -> "subprocess.Popen[str]":
    """Start `program` as the module `work` with the argument `given`. In it, `number` is the number of the try."""
    count = (
        "import os, signal, subprocess, sys, time\n"
        "tries = open('tries', 'a+'); tries.write(sys.argv[1] + chr(10)); tries.flush()\n"
        "tries.seek(0); number = len(tries.readlines())\n"
    )
    (folder / "work.py").write_text(count + program)
    path = os.pathsep.join([str(folder), str(Path(pod_retries.__file__).parents[3])])
    asked = {"STILLHOUSE_RETRIES": str(retries), "STILLHOUSE_RETRY_AFTER_SECONDS": str(pause), "PYTHONPATH": path}
    words = [sys.executable, "-m", pod_retries.__name__, "work", "given"]
    environment = os.environ | POD | asked | more
    return subprocess.Popen(words, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


def tries(folder: Path) -> list[str]:
    path = folder / "tries"
    return path.read_text().splitlines() if path.exists() else []


def end(process: "subprocess.Popen[str]") -> tuple[int, list[str]]:
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


@dsl.component(base_image="x", install_kfp_package=False)
def work(text: str) -> str:
    import os
    from pathlib import Path

    from stillhouse.kubeflow.pods.in_pod import one_line_errors

    with one_line_errors():
        with Path("tries").open("a+") as tries:
            tries.write(f"{text}\n")
            tries.seek(0)
            number = len(tries.readlines())
        if number == 1:
            os.kill(os.getpid(), 9)
        if number == 2:
            raise RuntimeError("no luck")
    return f"{text} after {number} tries"


@pytest.fixture
def container(tmp_path: Path) -> Iterator[dict]:
    @dsl.pipeline(name="p")
    def pipeline():
        place(work(text="python3 -m kfp.dsl.executor_main "), Placement(retries=2, retry_after_seconds=0), "work", {})

    compiler.Compiler().compile(pipeline, str(tmp_path / "ir.yaml"))
    spec = next(yaml.safe_load_all((tmp_path / "ir.yaml").read_text()))
    yield spec["deploymentSpec"]["executors"]["exec-work"]["container"]


@pytest.mark.parametrize("in_a_pod", [True, False])
def test_a_compiled_task_s_pod_tries_again_and_hands_on_its_result(
    in_a_pod: bool, container: dict, tmp_path: Path
) -> None:
    """Run the command line of Kubeflow's launcher, with the environment that the pipeline gives the pod."""
    out = tmp_path / "out.json"
    given = {
        "inputs": {"parameterValues": {"text": "done"}},
        "outputs": {"parameters": {"Output": {"outputFile": str(tmp_path / "Output")}}, "outputFile": str(out)},
    }
    words = [json.dumps(given) if word == "{{$}}" else word for word in container["command"] + container["args"]]
    asked = {entry["name"]: entry["value"] for entry in container["env"]} | {"TMPDIR": str(tmp_path)}
    asked |= POD if in_a_pod else {"KUBERNETES_SERVICE_HOST": ""}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    asked |= {"PATH": path, "PYTHONPATH": str(Path(pod_retries.__file__).parents[3])}
    done = subprocess.run(words, cwd=tmp_path, env=os.environ | asked, capture_output=True, text=True, timeout=120)
    if in_a_pod:
        assert done.returncode == 0, done.stderr
        assert json.loads(out.read_text())["parameterValues"]["Output"] == "done after 3 tries"
    else:
        assert done.returncode and tries(tmp_path) == ["done"]
