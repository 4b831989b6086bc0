"""The level `query_only` on a cluster: the bodies of its pods, one after the other, on real repositories."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from release_repositories import LIGHT, Source, first_release

from stillhouse.core.artifacts import read_manifest
from stillhouse.kubeflow.pods.refresh import (
    PLANNED,
    REFRESHED,
    RELEASED,
    SUMMARY,
    run_check,
    run_first_stage,
    run_plan,
    run_refresh_stage,
    run_release,
)
from stillhouse.kubeflow.pods.run_control import TEXT
from stillhouse.kubeflow.pods.stage import CORPUS_STAGE, FOLDER, METRICS, PAGE, RECIPE
from stillhouse.pipeline.recipes import load_recipe
from stillhouse.releases.git import Git
from stillhouse.releases.refresh.graph import CHALLENGER
from stillhouse.releases.refresh.parameters import carried_recipe, read_parameters
from stillhouse.releases.refresh.plan import Level
from stillhouse.releases.tags import Release, read_history

pytestmark = pytest.mark.long

TOWER = {"max_steps": 2, "batch_size": 8, "learning_rate": 0.001}


class Cluster:
    """A repository of releases, and the folders of the tasks of one run after another."""

    def __init__(self, place: Path) -> None:
        self.place, self.runs = place, 0
        self.source = Source(place / "source", place / "source-shelf")
        recipe = {"graph": "unlabelled", "query_tower": TOWER}
        self.work = first_release(place / "work", self.source, place / "shelf", LIGHT, **recipe)
        self.recipe = load_recipe(self.work / "params.yaml")

    @property
    def champion(self) -> Release:
        found = read_history(Git.of(self.work)).champion
        assert found is not None
        return found

    def refresh(self, revision: str, **asked: Any) -> Run:
        """Runs the tasks of the level that the plan decides on, which must be `query_only`."""
        self.runs += 1
        run = Run(self.place / f"run-{self.runs}")
        values = {"releases": f"{self.work}.git", "repo": str(self.source.folder), "source": "corpus"}
        parameters = read_parameters(values | {"revision": revision, "most_loss": 1.0, "alpha": 0.0} | asked)
        given = {RECIPE: run.at(RECIPE)}
        run_check(vars(parameters) | {TEXT: carried_recipe(self.recipe)} | given)
        run_first_stage(CORPUS_STAGE, given | run.outputs(CORPUS_STAGE))
        given[CORPUS_STAGE] = run.at(CORPUS_STAGE)
        released = {RELEASED: run.at(RELEASED)}
        assert run_plan(given | released | {REFRESHED: run.at("plan"), SUMMARY: run.at("summary")}) == Level.QUERY_ONLY
        known = released | {PLANNED: run.at("plan"), REFRESHED: run.at("tried")}
        run_refresh_stage(CHALLENGER, given | known | run.outputs(CHALLENGER))
        ends = {name: run.at(f"end-{name}") for name in (REFRESHED, SUMMARY, METRICS)}
        run_release(given | ends | {PLANNED: run.at("tried"), CHALLENGER: run.at(CHALLENGER)})
        return run


class Run:
    """The folders of one run's artifacts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        return self.folder / name

    def at(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(path=str(self.path(name)), metadata={}, log_metric=lambda name, value: None)

    def outputs(self, stage: str) -> dict[str, SimpleNamespace]:
        return {FOLDER: self.at(stage)} | {name: self.at(f"{stage}-{name}") for name in (METRICS, PAGE)}

    def made(self, use: str) -> bool:
        """Whether the run needed this use."""
        return self.path(f"{CHALLENGER}/{use}").is_dir()

    @property
    def record(self) -> Mapping[str, Any]:
        return dict(json.loads((self.path("end-refreshed") / "refresh.json").read_text()))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    return Cluster(tmp_path_factory.mktemp("cluster"))


@pytest.fixture(autouse=True)
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path / "volume"))


def test_a_trial_that_fails_trains_the_retriever(cluster: Cluster) -> None:
    """Two steps of a tiny model show nothing, so the same task runs the uses of `fine_tune`."""
    champion = cluster.champion
    run = cluster.refresh(cluster.source.drop_query())
    assert (run.record["level"], run.record["outcome"]) == ("fine_tune", "released")
    assert "the query tower alone gains" in run.record["reason"]
    assert run.made("query_tower") and run.made("challenger") and run.made("challenger_index")
    release = cluster.champion
    assert release.record["level"] == "fine_tune" and release.record["summary"].startswith(
        f"fine_tune on {champion.name}"
    )
    chosen = read_manifest(run.path("challenger/challenger_best/retriever"))
    assert release.record["artifacts"]["retriever"]["digest"] == chosen.digest
    stages = yaml.safe_load(Git.of(cluster.work).read(release.commit, "dvc.yaml"))["stages"]
    assert "challenger" in stages and "query_tower" not in stages
