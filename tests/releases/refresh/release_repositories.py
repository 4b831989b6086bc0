"""An editable corpus in a DVC repository, and a repository of its releases: refreshes start from them."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from repositories import call, commit, dvc, make_repository

from stillhouse import cli
from stillhouse.core.artifacts import read_manifest
from stillhouse.corpus.sources.options import sample_folder
from stillhouse.pipeline.dvc_file import HEADER, PLAN_STAGE, stage
from stillhouse.pipeline.graph import ARTIFACTS, GRAPH, STAGES, graph_of, known_steps, needed
from stillhouse.pipeline.graph_steps import stages_of
from stillhouse.pipeline.in_process import run_steps
from stillhouse.pipeline.plan_files import write_plan
from stillhouse.pipeline.recipes import configs, find_recipe, load_recipe
from stillhouse.releases import data
from stillhouse.releases.promotion import Candidate, promote
from stillhouse.releases.refresh.graph import released_of

ARTICLES = 11
LIGHT = {
    "corpus": "ingest/corpus",
    "retriever": "fetch_model/encoder",
    "index": "zero_shot_index/index",
    "run": "zero_shot_run/run",
}
"""A release of the base model, without any training."""


class Source:
    """The first articles of the sample in a DVC repository, ready for edits."""

    def __init__(self, folder: Path, storage: Path) -> None:
        self.folder = make_repository(folder, storage)
        shutil.copytree(sample_folder(), self.folder / "corpus")
        for path in self.articles()[ARTICLES:]:
            path.unlink()
        self._keep_queries({path.stem for path in self.articles()})
        self.commit("Begin")

    def _keep_queries(self, articles: set[str]) -> None:
        """Keep only the queries whose passage belongs to one of these articles."""
        kept = set()
        for path in (self.folder / "corpus" / "qrels").glob("*.tsv"):
            head, *rows = path.read_text().splitlines()
            rows = [row for row in rows if any(row.split("\t")[1].startswith(f"{name}") for name in articles)]
            kept |= {row.split("\t")[0] for row in rows}
            path.write_text("\n".join([head, *rows]) + "\n")
        path = self.folder / "corpus" / "queries.jsonl"
        queries = [line for line in path.read_text().splitlines() if json.loads(line)["_id"] in kept]
        path.write_text("\n".join(queries) + "\n")

    def articles(self) -> list[Path]:
        return sorted((self.folder / "corpus" / "articles").glob("*.md"))

    def rewrite(self, articles: int, words: str) -> str:
        """Add words to the sentences of the first `articles` articles, and return the new revision."""
        for path in self.articles()[:articles]:
            path.write_text(path.read_text().replace(". ", f", {words}. "))
        return self.commit(words)

    def commit(self, message: str) -> str:
        dvc(self.folder, "add", "corpus")
        dvc(self.folder, "push")
        return commit(self.folder, message)

    @property
    def revision(self) -> str:
        return call(self.folder, "git", "rev-parse", "HEAD").strip()


def weights(model: Path) -> dict[str, str]:
    """Return the digests of a model's weight files."""
    files = read_manifest(model).files
    return {name: digest for name, digest in files.items() if name.endswith(".safetensors")}


LABELLED = {"graph": "labelled", "teacher": {"kind": "best", "depth": 4}}
"""What makes the recipe `micro` one for labelled corpora: its graph, and a teacher of BM25 and a retriever."""


def first_release(
    folder: Path, source: Source, storage: Path, places: Mapping[str, str] | None = None, **changes: Any
) -> Path:
    """Return a workspace with a promoted run: the whole run, or the steps that a release of `places` needs.

    `changes` are sections that replace those of the recipe `micro`. Its dvc.yaml has the stages of these steps, whose
    outputs are whole folders `artifacts/<step>`.
    """
    make_repository(folder, storage)
    recipe = dict(yaml.safe_load(find_recipe("micro").read_text())) | changes
    recipe["ingest"] = {"source": "corpus", "repo": str(source.folder)} | changes.get("ingest", {})
    whole = graph_of({name: recipe[name] for name in (GRAPH, STAGES, "ingest") if name in recipe})
    recipe = {name: of for name, of in recipe.items() if name in (GRAPH, STAGES, *known_steps(recipe))}
    steps = needed(whole, [place.split("/")[0] for place in (places or released_of(whole)).values()])
    (folder / "params.yaml").write_text(yaml.safe_dump(recipe))
    recipe = load_recipe(folder / "params.yaml")
    stages = PLAN_STAGE | {one.name: stage(one, recipe, folder) for one in stages_of(steps)}
    (folder / "dvc.yaml").write_text(HEADER + yaml.safe_dump({"stages": stages}))
    commit(folder, "A recipe")
    settings = configs(recipe, "recipe")
    run_steps(steps, settings, folder / ARTIFACTS)
    write_plan(steps, settings, folder)
    data.record(folder)
    if places is None:
        assert cli.main(["release", "promote", "--folder", str(folder), "--quiet"]) == 0
        return folder
    paths = {name: (ARTIFACTS / place).as_posix() for name, place in places.items()}
    candidate = Candidate(folder, paths, "major", "the base model", {"level": "whole_run"})
    outcome = promote(candidate, lambda against: {}, recorded=False)
    assert outcome.kind == "released", outcome.reason
    return folder
