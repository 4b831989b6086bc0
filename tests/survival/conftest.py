"""What the tests of survival begin with: artifacts, and a disk that is too small."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from micro_uses import RUN_USES, begin
from small_disk import Disk, mounted


@pytest.fixture(scope="session")
def calm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, float]]:
    """The artifacts of a run that nobody disturbs, and the seconds that each use takes."""
    folder, seconds = tmp_path_factory.mktemp("calm"), {}
    for use in RUN_USES:
        started = time.monotonic()
        process = begin(use, folder / "artifacts", folder / "artifacts", folder / "work")
        process.join()
        assert process.exitcode == 0, use.name
        seconds[use.name] = time.monotonic() - started
    return folder / "artifacts", seconds


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with mounted(tmp_path / "disk") as found:
        yield found
