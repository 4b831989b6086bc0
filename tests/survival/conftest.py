"""Fixtures of the survival tests: artifacts, and a disk that is too small."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_once import made_once
from micro_steps import RUN_STEPS, SMALL, START, begin
from small_disk import Disk, mounted
from start_model import make_start_model


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    """The artifacts of an undisturbed run, and the seconds of each step. Tests do not change them."""
    folder, seconds = made_once(tmp_path_factory, "calm", run_calmly)
    return folder / "artifacts", seconds


def run_calmly(folder: Path) -> dict[str, float]:
    if SMALL:
        make_start_model(folder / "artifacts" / START)
    seconds = {}
    for step in RUN_STEPS:
        started = time.monotonic()
        process = begin(step, folder / "artifacts", folder / "artifacts", folder / "work")
        process.join()
        assert process.exitcode == 0, step.name
        seconds[step.name] = time.monotonic() - started
    return seconds


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with mounted(tmp_path / "disk") as found:
        yield found
