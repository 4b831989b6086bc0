"""The preflight: readings that pass, and a remedy for each that fails."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from good_machine import GOOD

from stillhouse import cli
from stillhouse.cli import preflight as preflight_command
from stillhouse.kubeflow.pods import pod_preflight
from stillhouse.kubeflow.pods.several_processes import PROCESSES
from stillhouse.kubeflow.preflight import REQUIREMENTS, Readings, Requirements, check, problems

WANTED = Requirements(gpus=2, shared_memory_gib=16.0, free_gib=20.0)

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "shared memory": ({"shared_memory_gib": 0.0625}, "emptyDir with medium Memory"),
    "disk": ({"free_gib": 19.0}, "has 19.0 GiB left, but needs 20"),
    "not writable": ({"writable": False}, "`user` and `group`"),
    "no CUDA in PyTorch": ({"cuda_build": "", "gpus": 0}, "set the pipeline's parameter `image` to the GPU image"),
    "no driver": ({"driver": "", "gpus": 0}, "`accelerator_type`"),
    "too few": ({"gpus": 1}, "1 GPUs can be used (driver 570.86.15, PyTorch for CUDA 12.8), but 2 are needed"),
    "it cannot compute": ({"failure": "no kernel image"}, "no kernel image"),
    "no NCCL": ({"nccl": ""}, "set `accelerator_count` to 1"),
    "parts of a GPU": ({"gpus": 1}, "so set `accelerator_count` to 1 there"),
    "apart": (
        {"together": 2, "apart": "no sum"},
        "2 GPUs (A, A) cannot work together over NCCL 2.27.3 (no sum): give /dev/shm",
    ),
    "no peer access": ({"together": 2, "apart": "no sum"}, "try NCCL_P2P_DISABLE=1 there"),
}


def test_a_suitable_machine_has_no_problems() -> None:
    assert problems(WANTED, GOOD) == []
    assert "2 GPUs (A, A; driver 570.86.15, CUDA 12.8, NCCL 2.27.3)" in check(WANTED, GOOD)


@pytest.mark.parametrize("case", CASES)
def test_every_problem_has_its_remedy_and_is_reported_alone(case: str) -> None:
    changed, remedy = CASES[case]
    [problem] = problems(WANTED, replace(GOOD, **changed))
    assert remedy in problem


def test_the_command_reports_the_machine_and_its_problems(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["preflight", "--work", str(tmp_path)]) == 0
    assert f"free in {tmp_path}" in capsys.readouterr().out
    monkeypatch.setenv(REQUIREMENTS, json.dumps({"free_gib": 1e9}))
    assert cli.main(["preflight", "--work", str(tmp_path)]) == 2
    assert "enlarge the volume" in capsys.readouterr().err


Asked = list[tuple[int, str]]


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Simulate a pod with four GPUs, and record how many of them each preflight tries together."""
    wanted: Asked = []

    def readings(work: Path, together: int = 0) -> Readings:
        wanted.append((together, str(work)))
        return replace(GOOD, gpus=4, names=("A",) * 4, together=together)

    for module in (preflight_command, pod_preflight):
        monkeypatch.setattr(module, "take_readings", readings)
    monkeypatch.setenv(REQUIREMENTS, json.dumps({"gpus": 1}))
    monkeypatch.delenv(PROCESSES, raising=False)
    return wanted


RUNS: dict[str, tuple[str, bool, str, int]] = {
    "a training on all of them": ("4", True, "", 4),
    "one GPU": ("1", True, "", 0),
    "a step of one process": ("4", False, "", 0),
    "one process by choice": ("4", True, "1", 0),
}


@pytest.mark.parametrize("case", RUNS)
def test_a_pod_looks_for_the_gpus_of_its_run(case: str, four_gpus: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """The count is a pipeline parameter, which kfp's executor receives on its command line."""
    count, parallel, processes, together = RUNS[case]
    given = {"inputs": {"parameterValues": {"pipelinechannel--accelerator_count": count}}}
    monkeypatch.setattr("sys.argv", ["executor_main.py", "--executor_input", json.dumps(given)])
    if processes:
        monkeypatch.setenv(PROCESSES, processes)
    pod_preflight.check_pod(parallel)
    assert [number if number > 1 else 0 for number, _ in four_gpus] == [together]
