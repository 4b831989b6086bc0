"""Threads: what the environment gets, and that PyTorch's OpenMP reads it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from stillhouse.models.acceleration.threads import FEW, POLICY, SPINS, THREADS, divide_threads, prepare_threads

NAMES = (THREADS, POLICY, SPINS)


def test_a_limit_of_cores_limits_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr("stillhouse.models.acceleration.threads.own_cores", lambda: 8)
    environment: dict[str, str] = {}
    prepare_threads(environment)
    assert environment == {THREADS: "8", SPINS: FEW}
    monkeypatch.setattr("stillhouse.models.acceleration.threads.own_cores", lambda: 64)
    environment = {}
    prepare_threads(environment)
    assert environment == {SPINS: FEW}, "OpenMP counts the machine's cores itself"


@pytest.mark.parametrize("asked", [{THREADS: "3", SPINS: "7"}, {THREADS: "3", POLICY: "active"}])
def test_what_the_user_set_stays(monkeypatch: pytest.MonkeyPatch, asked: dict[str, str]) -> None:
    monkeypatch.setattr("stillhouse.models.acceleration.threads.own_cores", lambda: 1)
    environment = dict(asked)
    prepare_threads(environment)
    assert environment == asked


@pytest.mark.parametrize(
    ("given", "processes", "each"), [("8", 2, "4"), ("8", 3, "2"), ("1", 4, "1"), ("6,2", 2, "3"), ("", 2, "5")]
)
def test_processes_of_one_pod_share_its_threads(
    monkeypatch: pytest.MonkeyPatch, given: str, processes: int, each: str
) -> None:
    monkeypatch.setattr("stillhouse.models.acceleration.threads.own_cores", lambda: 10)
    environment = {THREADS: given} if given else {}
    divide_threads(processes, environment)
    assert environment == {THREADS: each}


COMMAND = "from stillhouse.cli import main; main(['--version'])"


def test_pytorch_finds_its_threads_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    program = f"{COMMAND}; import sys; assert 'torch' not in sys.modules; import torch"
    shown = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"OMP_DISPLAY_ENV": "verbose"}, capture_output=True, text=True
    )
    assert shown.returncode == 0, shown.stderr
    assert f"GOMP_SPINCOUNT = '{FEW}'" in shown.stderr, "libgomp prints what it read"
