"""The preflight: readings that will do, and a remedy for each that will not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stillhouse import cli
from stillhouse.errors import InputError
from stillhouse.preflight import (
    REQUIREMENTS,
    Readings,
    Requirements,
    check,
    driver_version,
    problems,
    read_requirements,
    take_readings,
)

GOOD = Readings(
    shared_memory_gib=16.0,
    free_gib=200.0,
    writable=True,
    work="/volume",
    cuda_build="12.8",
    driver="570.86.15",
    gpus=2,
    names=("A", "A"),
    nccl="2.27.3",
)
WANTED = Requirements(gpus=2, shared_memory_gib=16.0, free_gib=20.0)

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "shared memory": ({"shared_memory_gib": 0.0625}, "emptyDir with medium Memory"),
    "disk": ({"free_gib": 19.0}, "has 19.0 GiB left, 20 are needed"),
    "not writable": ({"writable": False}, "`user` and `group`"),
    "no CUDA in PyTorch": ({"cuda_build": "", "gpus": 0}, "give the pipeline's parameter `image` the GPU image"),
    "no driver": ({"driver": "", "gpus": 0}, "`accelerator_type`"),
    "too few": ({"gpus": 1}, "1 GPUs can be used (driver 570.86.15, PyTorch for CUDA 12.8), 2 are needed"),
    "it cannot compute": ({"failure": "no kernel image"}, "no kernel image"),
    "no NCCL": ({"nccl": ""}, "set `accelerator_count` to 1"),
}


def test_a_machine_that_will_do() -> None:
    assert problems(WANTED, GOOD) == []
    assert "2 GPUs (A, A; driver 570.86.15, CUDA 12.8, NCCL 2.27.3)" in check(WANTED, GOOD)


def test_a_file_system_may_show_a_little_less() -> None:
    assert problems(WANTED, replace(GOOD, shared_memory_gib=15.6)) == []


@pytest.mark.parametrize("case", CASES)
def test_every_problem_has_its_remedy_and_is_told_alone(case: str) -> None:
    changed, remedy = CASES[case]
    [problem] = problems(WANTED, replace(GOOD, **changed))
    assert remedy in problem


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(InputError) as refusal:
        check(WANTED, replace(GOOD, shared_memory_gib=0.1, free_gib=1.0, driver="", gpus=0))
    assert str(refusal.value).count("\n  - ") == 3


def test_without_a_gpu_nothing_is_asked_of_one() -> None:
    bare = replace(GOOD, cuda_build="", driver="", gpus=0, nccl="", names=())
    assert check(Requirements(shared_memory_gib=1), bare).startswith("no GPU; ")


@pytest.mark.parametrize("text", ["{", "[]", '{"gpu": 1}', '{"gpus": "many"}'])
def test_a_wrong_request_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"STILLHOUSE_PREFLIGHT"):
        read_requirements({REQUIREMENTS: text})
    assert read_requirements({}) is None


def test_readings_of_this_machine(tmp_path: Path) -> None:
    found = take_readings(tmp_path / "not/yet/there")
    assert found.writable and found.free_gib > 0 and found.work.endswith("not/yet/there")
    assert not (tmp_path / "not").exists(), "looking leaves nothing behind"


def test_the_driver_is_read_from_the_kernel_module(tmp_path: Path) -> None:
    path = tmp_path / "version"
    path.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Tue Jan  7 2025\nGCC version:  gcc 12.2\n"
    )
    assert driver_version(path) == "570.86.15"
    assert driver_version(tmp_path / "none") == ""


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli.main(["preflight", "--work", str(tmp_path)]) == 0
    assert f"free in {tmp_path}" in capsys.readouterr().out
    monkeypatch.setenv(REQUIREMENTS, json.dumps({"free_gib": 1e9}))
    assert cli.main(["preflight", "--work", str(tmp_path)]) == 2
    assert "enlarge the volume" in capsys.readouterr().err
