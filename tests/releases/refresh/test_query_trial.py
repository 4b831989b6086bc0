"""The rung `query_only` on a cluster: the bodies of its pods, one after the other, on real repositories."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from release_repositories import LIGHT, Source, first_release, weights
from stillhouse.kubernetes.pods.query_trial import run_trial
from stillhouse.kubernetes.pods.task import METRICS, PAGE, RUN, port_name

from stillhouse.artifacts import read_manifest
from stillhouse.kubernetes.pods.refresh import MADE, NOT_MADE, TAKEN, run_check, run_plan, run_release
from stillhouse.pipelines.refresh import TRIAL, trial_task
from stillhouse.releases.git import Git
from stillhouse.releases.refresh.graph import Ladder, before
from stillhouse.releases.refresh.parameters import read_parameters, write_recipe
from stillhouse.releases.refresh.plan import Rung
from stillhouse.releases.tags import Release, read_history
from stillhouse.retrieval.fine_tuning import query_training
from stillhouse.training import loop
from stillhouse.workflow.graph import graph_of
from stillhouse.workflow.in_process import run_uses
from stillhouse.workflow.recipes import configs, load_recipe

STAGES = {"pretraining": "none", "reranker": "none", "teacher": "none", "best": "none"}
TOWER = {"max_steps": 2, "batch_size": 8, "learning_rate": 0.001}


class Cluster:
    """A repository of releases, and the folders of the tasks of one run after another."""

    def __init__(self, place: Path) -> None:
        self.place, self.runs = place, 0
        self.source = Source(place / "source", place / "source-shelf")
        recipe = {"stages": STAGES, "query_tower": TOWER}
        self.work = first_release(place / "work", self.source, place / "shelf", LIGHT, **recipe)
        self.recipe = load_recipe(self.work / "params.yaml")

    @property
    def champion(self) -> Release:
        found = read_history(Git.of(self.work)).champion
        assert found is not None
        return found

    def refresh(self, revision: str, **asked: Any) -> Run:
        """Runs the tasks of the rung that the plan decides on, which must be `query_only`."""
        self.runs += 1
        run = Run(self.place / f"run-{self.runs}")
        values = {"releases": f"{self.work}.git", "repo": str(self.source.folder), "source": "corpus"}
        parameters = read_parameters(values | {"revision": revision, "most_loss": 1.0, "alpha": 0.0} | asked)
        run_check(vars(parameters) | {"asked": run.at("asked")})

        whole = graph_of(self.recipe)
        sections = self.recipe | {"ingest": self.recipe["ingest"] | {"revision": revision}}
        settings = configs(sections, "recipe")
        run_uses(before(whole), settings, run.folder)
        given = {name: run.at(name) for name in ("asked", *TAKEN, "refreshed", "summary")}
        given |= {"corpus": run.at("ingest/corpus"), "validation": run.at("validate/validation")}
        assert run_plan(given | {"recipe": write_recipe(self.recipe)}) == Rung.QUERY_ONLY

        task = trial_task(Ladder.of(whole).climbed_from(Rung.QUERY_ONLY))
        of_champion = {source: run.at(source.removeprefix("champion/")) for source in task.inputs}
        of_champion["ingest/corpus"] = run.at("ingest/corpus")
        ports = {port_name(source): of for source, of in of_champion.items()}
        ports |= {port_name(source): run.at(source) for source in task.outputs}
        own = {METRICS: run.at("metrics"), PAGE: run.at("page"), "refreshed": run.at("tried")}
        run_trial(TRIAL, ports | own | {RUN: "1", "planned": run.at("refreshed")})

        handed = {name: run.at(place) for name, place in MADE.items() if run.path(place).exists()}
        ends = {name: run.at(f"end-{name}") for name in ("refreshed", "summary", "metrics")}
        run_release(handed | ends | {"planned": run.at("tried")})
        return run


class Run:
    """The folders of one run's artifacts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str) -> Path:
        return self.folder / name

    def at(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(path=str(self.path(name)), metadata={}, log_metric=lambda name, value: None)

    def made(self, use: str) -> bool:
        """Whether the run needed this use; otherwise each of its outputs says so."""
        folders = list(self.path(use).iterdir())
        left_out = {(folder / NOT_MADE).is_file() for folder in folders}
        assert len(left_out) == 1, use
        return left_out == {False}

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
    assert (run.record["rung"], run.record["outcome"]) == ("fine_tune", "released")
    assert "the query tower alone gains" in run.record["reason"]
    assert run.made("query_tower") and run.made("challenger") and run.made("challenger_index")
    release = cluster.champion
    assert release.record["rung"] == "fine_tune" and release.record["summary"].startswith(
        f"fine_tune on {champion.name}"
    )
    trained = read_manifest(run.path("challenger/retriever"))
    assert release.record["artifacts"]["retriever"]["digest"] == trained.digest
    stages = yaml.safe_load(Git.of(cluster.work).read(release.commit, "dvc.yaml"))["stages"]
    assert "challenger" in stages and "query_tower" not in stages


def test_a_sufficient_trial_trains_nothing_else(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """`test_plan.py` tests the decision itself; here dev is made to show a gain."""
    monkeypatch.setattr("stillhouse.releases.refresh.run.after_queries", lambda planned, *found: planned)
    for module in (loop, query_training):
        monkeypatch.setattr(module, "best_row", lambda rows, metric: rows[-1])
    run = cluster.refresh(cluster.source.drop_query(), query_only_gain=0.0)
    assert (run.record["rung"], run.record["outcome"]) == ("query_only", "released")
    assert run.made("query_tower") and run.made("champion_index") and run.made("challenger_run")
    assert not any(run.made(use) for use in ("refreshed_negatives", "challenger", "challenger_index"))
    release = cluster.champion
    held = {name: release.record["artifacts"][name]["digest"] for name in ("retriever", "index")}
    assert held == {name: read_manifest(run.path(f"query_tower/{name}")).digest for name in held}
    was, now = weights(run.path("retriever")), weights(run.path("query_tower/retriever"))
    assert was["model.safetensors"] == now["model.safetensors"] and now.keys() > was.keys()
