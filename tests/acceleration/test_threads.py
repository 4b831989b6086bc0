"""Threads: what the environment gets, and that PyTorch's OpenMP reads it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from stillhouse.acceleration.threads import FEW, POLICY, SPINS, THREADS, divide_threads, prepare_threads

NAMES = (THREADS, POLICY, SPINS)


def test_a_limit_of_cores_limits_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr("stillhouse.acceleration.threads.own_cores", lambda: 8)
    environment: dict[str, str] = {}
    prepare_threads(environment)
    assert environment == {THREADS: "8", SPINS: FEW}
    monkeypatch.setattr("stillhouse.acceleration.threads.own_cores", lambda: 64)
    environment = {}
    prepare_threads(environment)
    assert environment == {SPINS: FEW}, "OpenMP counts the machine's cores itself"


@pytest.mark.parametrize("asked", [{THREADS: "3", SPINS: "7"}, {THREADS: "3", POLICY: "active"}])
def test_what_the_user_set_stays(monkeypatch: pytest.MonkeyPatch, asked: dict[str, str]) -> None:
    monkeypatch.setattr("stillhouse.acceleration.threads.own_cores", lambda: 1)
    environment = dict(asked)
    prepare_threads(environment)
    assert environment == asked


@pytest.mark.parametrize(
    ("given", "processes", "each"), [("8", 2, "4"), ("8", 3, "2"), ("1", 4, "1"), ("6,2", 2, "3"), ("", 2, "5")]
)
def test_processes_of_one_pod_share_its_threads(
    monkeypatch: pytest.MonkeyPatch, given: str, processes: int, each: str
) -> None:
    monkeypatch.setattr("stillhouse.acceleration.threads.own_cores", lambda: 10)
    environment = {THREADS: given} if given else {}
    divide_threads(processes, environment)
    assert environment == {THREADS: each}


COMMAND = "from stillhouse.cli import main; main(['--version'])"
FUNCTION = "import stillhouse, sys; stillhouse.ingest('sample', sys.argv[1])"


@pytest.mark.parametrize("program", [COMMAND, FUNCTION])
def test_pytorch_finds_its_threads_prepared(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    program = f"{program}; import sys; assert 'torch' not in sys.modules; import torch"
    words = [sys.executable, "-c", program, str(tmp_path / "corpus")]
    shown = subprocess.run(words, env=os.environ | {"OMP_DISPLAY_ENV": "verbose"}, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert f"GOMP_SPINCOUNT = '{FEW}'" in shown.stderr, "libgomp prints what it read"
