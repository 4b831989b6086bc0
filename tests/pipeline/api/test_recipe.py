"""A whole recipe run by functions gives the same result as the command line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from beir_source import write_beir

import stillhouse
from stillhouse import cli
from stillhouse.core.artifacts import read_manifest
from stillhouse.corpus.store import Corpus
from stillhouse.pipeline.graph import graph_of
from stillhouse.pipeline.recipes import find_recipe, load_recipe


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shortest graph, with the small settings of `micro`."""
    steps = {step.name for step in graph_of({"graph": "unlabelled"})}
    micro = {name: values for name, values in load_recipe(find_recipe("micro")).items() if name in steps}
    content = {"graph": "unlabelled", **micro}
    path = tmp_path_factory.mktemp("recipe") / "start.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


@pytest.mark.long
def test_new_and_run_give_what_the_commands_give(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STILLHOUSE_WORK", raising=False)
    folder = stillhouse.new(tmp_path / "work", recipe=str(recipe))
    run = stillhouse.run(folder)
    assert os.fspath(run) == str(folder) and "STILLHOUSE_WORK" not in os.environ

    assert cli.main(["run", "--recipe", str(recipe), "--folder", str(tmp_path / "command"), "--quiet"]) == 0
    made = {path.parent.relative_to(folder) for path in folder.rglob("artifacts/*/*/manifest.json")}
    assert len(made) > 8
    for name in made:
        assert read_manifest(folder / name).digest == read_manifest(tmp_path / "command" / name).digest, name

    assert {"bm25", "zero_shot", "distilled", "best"} <= set(run.evaluation.figures) and run.evaluation.report.is_file()
    hits = run.searcher().search("why do ships carry clocks", 3)
    assert [hit.rank for hit in hits] == [1, 2, 3]
    assert Path(run.best) == folder / "artifacts" / "best" / "retriever" and run.best.hybrid.is_dir()
    with pytest.raises(stillhouse.InputError, match="reranker/reranker"):
        run.output("reranker", "reranker")

    before = read_manifest(run.output("zero_shot_index", "index")).digest
    again = stillhouse.run(folder, settings={"evaluate": {"bootstrap_samples": 101}}, until="evaluate")
    assert again.settings["evaluate"]["bootstrap_samples"] == 101
    assert read_manifest(again.output("evaluate", "evaluation")).config["bootstrap_samples"] == 101
    assert read_manifest(again.output("zero_shot_index", "index")).digest == before


def test_a_relative_source_is_found_from_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_beir(tmp_path / "articles", ["One bird sings."], ["who sings"], test=[0])
    monkeypatch.chdir(tmp_path)
    made = stillhouse.new("work", "articles")
    for own in ({}, {"source": tmp_path / "articles"}):
        run = stillhouse.run(made, settings={"ingest": {"queries": "source"} | own}, until="ingest")
        assert Corpus.open(run.output("ingest", "corpus")).passage_count == 1


def test_impossible_requests_are_reported_in_one_sentence(recipe: Path, tmp_path: Path) -> None:
    with pytest.raises(stillhouse.InputError, match=r"stillhouse\.new\("):
        stillhouse.run(tmp_path)
    folder = stillhouse.new(tmp_path / "work", recipe=str(recipe))
    with pytest.raises(stillhouse.InputError, match="evaluat"):
        stillhouse.run(folder, settings={"evaluation": {}})
    with pytest.raises(stillhouse.InputError, match="zero_shot_run"):
        stillhouse.run(folder, until="zero_shot_runs")
    with pytest.raises(stillhouse.InputError, match="hours"):
        stillhouse.new(tmp_path / "other", recipe=str(recipe), hours=-1)
    with pytest.raises(stillhouse.InputError):
        stillhouse.new(folder, recipe=str(recipe))
    assert not (tmp_path / "other").exists() and not (folder / "artifacts").exists()
