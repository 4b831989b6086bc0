"""The pipeline `refresh`, run with kfp's local runner on real git and DVC repositories.

This runs the compiled pipeline, including conditions and exit handler, with each task in a process of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from release_repositories import ARTICLES, LIGHT, Source, first_release, weights

from stillhouse import cli
from stillhouse.core.artifacts import read_manifest
from stillhouse.core.remote.git import Git
from stillhouse.kubeflow.pipelines.catalog import RESULTS
from stillhouse.kubeflow.pipelines.local import find_result, run_pipeline
from stillhouse.kubeflow.pipelines.refresh import build_refresh
from stillhouse.kubeflow.pods.refresh import run_release
from stillhouse.pipeline.recipes import find_recipe, load_recipe
from stillhouse.releases.data import fetch_release
from stillhouse.releases.tags import Release, read_history

THRESHOLDS = {"fine_tune_above": 0.2, "pretrain_above": 0.7}
LENIENT = {"most_loss": 1.0, "alpha": 0.0}
"""Rules that accept any result, because the result of two training steps is chance."""
BEFORE = {"check-refresh", "corpus"}
EVERY = BEFORE | {"plan-refresh", "challenger", "release-refresh", "report-end"}
"""The tasks of a run on any level: one of them does all the steps of the level."""


@dataclass
class Repositories:
    """A corpus, its releases, and a folder that stands in for the pods' volume."""

    source: Source
    work: Path
    volume: Path
    begin: str
    runs: list[Path] = field(default_factory=list)

    @property
    def champion(self) -> Release:
        found = read_history(Git.of(self.work)).champion
        assert found is not None
        return found

    def refresh(self, revision: str, recipe: Mapping[str, Any] | None = None, **more: Any) -> Run:
        """Runs the pipeline of the recipe `micro`, changed by `recipe`, on a revision of the corpus."""
        sections = load_recipe(find_recipe("micro")) | {"ingest": {}}
        for name, values in (recipe or {}).items():
            sections[name] = sections.get(name, {}) | values
        workspace = self.volume.with_name(f"run-{len(self.runs)}")
        self.runs.append(workspace)
        values = {"releases": str(self.work.with_suffix(".git")), "repo": str(self.source.folder), "source": "corpus"}
        run_pipeline(build_refresh(sections), values | {"revision": revision} | THRESHOLDS | more, workspace)
        [folder] = (workspace / "outputs").iterdir()
        return Run(folder)


@dataclass
class Run:
    """The results of a run: a folder for each finished task."""

    folder: Path

    @property
    def done(self) -> set[str]:
        return {path.parent.name for path in self.folder.glob("*/executor_output.json")}

    @property
    def logged(self) -> dict[str, Any]:
        found = find_result(self.folder.parent, RESULTS["refresh"])
        return json.loads((found / "refresh.json").read_text()) if found else {}

    @property
    def end(self) -> str:
        return (self.folder / "report-end" / "summary").read_text()

    def made(self, source: str) -> Path:
        """Return the folder of `use/output`, which the level's task need not have made."""
        return self.folder / "challenger" / "folder" / source

    def of_champion(self, name: str) -> Path:
        """Return what the plan took from the champion for the level."""
        return self.folder / "plan-refresh" / "released" / "champion" / name

    def metrics(self, task: str) -> dict[str, float]:
        return dict(json.loads((self.folder / task / "metrics").read_text()))


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repositories]:
    """The unchanged base model, released with its index."""
    yield from make(tmp_path_factory.mktemp("light"), LIGHT)


def make(place: Path, places: Mapping[str, str] | None = None) -> Iterator[Repositories]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STILLHOUSE_WORK", str(place / "volume"))
        source = Source(place / "source", place / "source-storage")
        begin = source.revision
        work = first_release(place / "work", source, place / "storage", places)
        yield Repositories(source, work, place / "volume", begin)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repositories]:
    """The release of a whole run, from which training continues."""
    yield from make(tmp_path_factory.mktemp("whole"))


@pytest.fixture(autouse=True)
def same_volume(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the volume of the first release, so that its vectors are found again."""
    for name in {"light", "whole"} & set(request.fixturenames):
        monkeypatch.setenv("STILLHOUSE_WORK", str(request.getfixturevalue(name).volume))


@pytest.mark.long
def test_an_unchanged_corpus_does_nothing(light: Repositories) -> None:
    before = light.champion
    run = light.refresh(light.begin)
    assert run.done == BEFORE | {"plan-refresh", "report-end"} and "refresh: succeeded" in run.end
    assert run.logged == {"level": "nothing", "champion": before.name, "reason": run.logged["reason"]}
    assert "nothing to do" in run.logged["reason"] and light.champion == before
    assert not run.of_champion("").exists()


def test_a_small_change_indexes(light: Repositories, tmp_path: Path) -> None:
    """After a change of one article of eleven, it encodes the passages of that article and builds the index."""
    little = light.source.rewrite(1, "as was found later")
    run = light.refresh(little)
    assert run.done == EVERY
    assert (run.logged["level"], run.logged["outcome"], run.logged["release"]) == ("index", "released", "v1.0.1")
    assert "refresh: succeeded" in run.end
    champion = light.champion
    changed = champion.record["difference"]
    passages = read_manifest(run.made("challenger_index/index")).facts["passages"]
    assert run.metrics("challenger")["challenger_index/encoded"] == changed["new_texts"]
    assert 0 < changed["new_texts"] < passages / 4
    assert champion.name == "v1.0.1" and champion.record["source"]["commit"] == little
    retriever = run.made("challenger_best/retriever")
    assert read_manifest(retriever).digest == champion.record["artifacts"]["retriever"]["digest"]
    assert weights(retriever) == weights(run.of_champion("retriever")), "the retriever stays the champion's"

    # The release is a workspace that records the source of its corpus, and everybody can fetch its data.
    git = Git.of(light.work)
    released = yaml.safe_load(git.read(champion.commit, "params.yaml"))
    assert released["ingest"] | {"revision": little, "repo": str(light.source.folder)} == released["ingest"]
    found = fetch_release(git, champion, tmp_path / "had", ("index",))["index"]
    assert read_manifest(found).digest == champion.record["artifacts"]["index"]["digest"]

    # A pod that was killed after its push, and is started again, finds its own release.
    handed = {"corpus": "corpus/folder", "challenger": "challenger/folder", "recipe": "check-refresh/recipe"}
    handed |= {"planned": "plan-refresh/refreshed"}
    artifacts = {name: SimpleNamespace(path=str(run.folder / place)) for name, place in handed.items()}
    logged: dict[str, float] = {}
    own = {name: SimpleNamespace(path=str(tmp_path / name)) for name in ("refreshed", "summary")}
    own["metrics"] = SimpleNamespace(path=str(tmp_path / "metrics"), log_metric=logged.__setitem__)
    run_release(artifacts | own)
    assert logged == {"released": 1.0} and light.champion.name == "v1.0.1"
    assert "already released" in (tmp_path / "summary").read_text()
    assert not git.tags("retriever#refused#*")


def test_a_corpus_that_does_not_pass_never_reaches_training(light: Repositories) -> None:
    before = light.champion
    for path in light.source.articles()[6:]:  # their queries remain
        path.unlink()
    run = light.refresh(light.source.commit("Broken"))
    assert run.done == BEFORE | {"report-end"} and "refresh: failed" in run.end
    verdict = run.folder / "corpus" / "folder" / "validate" / "validation"
    assert read_manifest(verdict).facts["passed"] is False and (run.folder / "corpus" / "page").is_file()
    assert not run.logged and light.champion == before


@pytest.mark.long
def test_a_refused_challenger_is_not_trained_again(whole: Repositories) -> None:
    """The rules ask for more test queries than there are."""
    before = whole.champion
    more = whole.source.rewrite(5, "which surprised many")
    strict = {"least_queries": 1000}
    run = whole.refresh(more, **strict)
    assert (run.logged["level"], run.logged["outcome"]) == ("fine_tune", "refused"), run.logged
    assert f"{before.name} stays" in run.logged["why"] and whole.champion == before
    assert "refresh: succeeded" in run.end, "a refusal is no failure"
    assert run.metrics("release-refresh") == {"released": 0.0}

    # It was trained from the released retriever, with new negatives and the re-ranker's scores of them.
    made_from = read_manifest(run.made("challenger/retriever")).inputs
    assert made_from["encoder"] == before.record["artifacts"]["retriever"]["digest"]
    assert {"negatives", "teacher"} <= set(made_from) and not run.made("refreshed_pretraining").exists()

    run = whole.refresh(more, **strict)
    assert run.logged["level"] == "nothing" and "was refused before" in run.logged["reason"]
    assert run.done == BEFORE | {"plan-refresh", "report-end"}, "it is not trained again"


@pytest.mark.long
def test_a_failed_training_does_not_replace_the_champion_s_retriever(whole: Repositories) -> None:
    """The dev queries choose the champion's retriever, which is released with an index of the current corpus."""
    before = whole.champion
    wrong = {"distilled": {"learning_rate": 0.02, "max_steps": 30}}
    run = whole.refresh(whole.source.rewrite(5, "which nobody noticed"), wrong, **LENIENT)
    assert (run.logged["level"], run.logged["outcome"]) == ("fine_tune", "released"), run.logged
    chosen = whole.champion.record["artifacts"]["retriever"]
    kept = run.made("challenger_best/retriever")
    assert read_manifest(kept).digest == chosen["digest"]
    assert chosen["path"] == "artifacts/challenger_best/retriever"
    assert weights(kept) == weights(run.of_champion("retriever")) != weights(run.made("challenger/retriever"))
    assert cli.main(["release", "rollback", "--folder", str(whole.work), "--reason", "a trial"]) == 0
    assert whole.champion.name == before.name


@pytest.mark.long
def test_a_large_change_pretrains_and_a_rollback_restarts_earlier(whole: Repositories) -> None:
    """Pre-training starts from the released encoder, and training from its result.

    After a rollback, a refresh starts from the earlier release.
    """
    before = whole.champion
    run = whole.refresh(whole.source.rewrite(ARTICLES, "or so it is said"), **LENIENT)
    assert (run.logged["level"], run.logged["release"]) == ("pretrain", "v2.0.0"), run.logged
    encoder = read_manifest(run.made("refreshed_pretraining/encoder"))
    assert encoder.inputs["init"] == before.record["artifacts"]["encoder"]["digest"]
    assert read_manifest(run.made("challenger/retriever")).inputs["encoder"] == encoder.digest
    assert whole.champion.name == "v2.0.0"

    assert cli.main(["release", "rollback", "--folder", str(whole.work), "--reason", "a trial"]) == 0
    assert whole.champion.name == before.name
    run = whole.refresh(before.record["source"]["commit"])
    assert (run.logged["level"], run.logged["champion"]) == ("nothing", before.name)
