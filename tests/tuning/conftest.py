"""Fixtures for searches over fake steps, in a temporary folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from stand_in_steps import RECIPE, Steps, install

from stillhouse.tuning.search import Search
from stillhouse.tuning.space import Space, read_space
from stillhouse.tuning.study import claim, open_study
from stillhouse.tuning.trial import Place
from stillhouse.tuning.trial_graph import make_shared, trial_graph


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Steps:
    monkeypatch.chdir(tmp_path)
    return install(monkeypatch)


@pytest.fixture
def space_of(tmp_path: Path) -> Callable[[str], Space]:
    def read(text: str) -> Space:
        path = tmp_path / "space.yaml"
        path.write_text(text)
        return read_space(path, RECIPE)

    return read


@pytest.fixture
def search_in(steps: Steps, space_of: Callable[[str], Space], tmp_path: Path) -> Callable[..., Search]:
    """Return a function that opens a search in `folder`, as a new process does."""

    def open_search(text: str, folder: str = "tune", seconds: float = 1e9, seed: int = 1) -> Search:
        graph = trial_graph(RECIPE, "params.yaml", space_of(text))
        place = Place(tmp_path / folder, tmp_path / "artifacts")
        claim(place.folder, {"space": text})
        make_shared(graph, place.workspace, place.shared, lambda line: None)
        return Search(graph, place, open_study(place.folder, seed), steps.clock, seconds, seed)

    return open_search
