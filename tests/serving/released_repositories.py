"""A git repository with DVC that contains the tests' small releases."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from git_identity import set_git_identity

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "releases"))
from repositories import make_repository, write_stages

from stillhouse.core.remote.git import Git
from stillhouse.releases.promotion import Candidate, promote
from stillhouse.releases.tags import roll_back

PARTS = ("corpus", "retriever", "index", "hybrid")
PATHS = {name: f"artifacts/{name}" for name in PARTS}
FIGURES = {"measures": {"nDCG@10": [0.75, [0.5, 0.875]], "RR@10": [0.5, None]}, "labels": "labelled"}
VERDICT: dict[str, Any] = {"accepted": True, "reason": "better", "difference": 0.25, "randomisation_p": math.nan}


@dataclass(frozen=True)
class Repository:
    """`work` is a clone, `origin` the repository that a service reads, and `releases` the DVC remote."""

    place: Path
    releases: Path

    @property
    def work(self) -> Path:
        return self.place / "work"

    @property
    def origin(self) -> Path:
        return self.place / "work.git"

    @property
    def address(self) -> str:
        return f"file://{self.origin}"

    @contextmanager
    def without_data(self) -> Iterator[None]:
        """The DVC remote does not answer until the block ends."""
        away = self.releases.with_name("away")
        self.releases.rename(away)
        try:
            yield
        finally:
            away.rename(self.releases)

    def step(self, version: str) -> None:
        """Puts a release into use."""
        roll_back(Git.of(self.work), version, "a test")


def release(repository: Repository, folder: Path) -> None:
    for name, path in PATHS.items():
        shutil.rmtree(repository.work / path, ignore_errors=True)
        shutil.copytree(folder / name, repository.work / path)
    candidate = Candidate(repository.work, PATHS, "minor", folder.parent.name, {"level": "test", "figures": FIGURES})
    assert promote(candidate, lambda against: VERDICT, recorded=False).kind == "released"


@pytest.fixture(scope="session")
def released(two_releases: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    """A repository with the two releases as v1.0.0 and v1.1.0, the latter in use. Tests only change copies of it."""
    with pytest.MonkeyPatch.context() as patch:
        set_git_identity(patch)
        place = tmp_path_factory.mktemp("released")
        repository = Repository(place, place / "releases")
        make_repository(repository.work, repository.releases)
        write_stages(repository.work, PATHS)
        for folder in two_releases:
            release(repository, folder)
        yield repository
