"""A whole recipe: `new` makes a working folder, `run` runs the recipe up to the winner and its figures."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.errors import InputError
from stillhouse.models.acceleration.threads import prepare_threads
from stillhouse.pipeline.api.results import Evaluation, Folder, StepResult

if TYPE_CHECKING:
    from stillhouse.search.searcher import Searcher

EVALUATION, BEST, CORPUS = "evaluate", "best", "ingest"
"""Steps in the graph (stillhouse/pipeline/graph.py) whose outputs a user reads after a run."""


@dataclass(frozen=True)
class Run(os.PathLike[str]):
    """The outputs of a recipe run in `folder`/artifacts; can be used as a path in place of `folder`."""

    folder: Path
    settings: Mapping[str, Mapping[str, Any]]
    """The recipe by sections, as in `params.yaml`, with the settings given to `run`."""

    def __fspath__(self) -> str:
        return str(self.folder)

    def output(self, step: str, name: str) -> Path:
        """The folder of an output, for example `run.output("retriever_1", "retriever")`.

        Raises `InputError` if the run made no such output.
        """
        path = self.folder / "artifacts" / step / name
        if not path.is_dir():
            raise InputError(f"the run made no {step}/{name}; the recipe leaves it out, or `until` stopped before it")
        return path

    @property
    def evaluation(self) -> Evaluation:
        """The figures of every system on the test queries, and the report."""
        folder = self.output(EVALUATION, "evaluation")
        facts = read_manifest(folder).facts
        return Evaluation(folder, {"evaluation": folder}, f"figures of {len(facts['systems'])} systems", {}, facts)

    @property
    def best(self) -> StepResult:
        """The retriever chosen on the dev questions, with its index and its fusion with BM25."""
        folders = {name: self.output(BEST, name) for name in ("retriever", "index", "hybrid")}
        facts = read_manifest(folders["hybrid"]).facts
        return StepResult(folders["retriever"], folders, "the winner on the dev questions", {}, facts)

    def searcher(self) -> Searcher:
        """The winner with its corpus, loaded for many questions."""
        from stillhouse.search.searcher import Searcher

        best = self.best
        return Searcher.open(self.output(CORPUS, "corpus"), best, best.index, best.hybrid)


def new(
    folder: Folder,
    source: Folder | None = None,
    *,
    recipe: str | None = None,
    model: Folder | None = None,
    hours: float | None = None,
    questions: Folder | None = None,
) -> Path:
    """Make a working folder as `stillhouse new` does, with `params.yaml`, `dvc.yaml` and a DVC repository.

    `source` is a corpus on disk or a name that `ingest` knows; it defaults to the recipe's own. `recipe` defaults to
    the one that fits the source and the model. `model` is the base model: a folder, `package:NAME` or a hub
    name, or the best of several, divided by commas; a bare language model is pre-trained first. In `hours`, the
    run trains on as many questions and in as many steps as this machine allows. `questions` is a folder that
    `stillhouse label` wrote, with dev questions for a source without training questions.

        stillhouse.new("work", "articles/", hours=2)

    Raises `InputError` if `folder` is already such a folder, for a source, recipe or model folder that does not exist,
    and for too few hours.
    """
    from stillhouse.pipeline.new_workspace import make

    if hours is not None and not 0 < hours < float("inf"):
        raise InputError(f"new(): hours must be a number above 0, such as 0.5 or 3, not {hours!r}")
    of, start = (None if place is None else os.fspath(place) for place in (source, model))
    make(Path(folder), of, recipe, start, hours, None if questions is None else Path(questions))
    return Path(folder)


def run(folder: Folder, *, settings: Mapping[str, Mapping[str, Any]] | None = None, until: str | None = None) -> Run:
    """Run the recipe of a folder that `new` made, in this process; outputs that are up to date are skipped.

    `settings` overrides settings of `params.yaml` by section, as in `{"retriever_1": {"epochs": 8}}`. `until` names a
    step of the recipe; only that step and what it depends on are run.

        hits = stillhouse.run("work", settings={"retriever_1": {"epochs": 8}}).searcher().search("who hears mice", 5)

    Raises `InputError` for a folder without `params.yaml`, for unknown sections and settings, and as the steps do;
    `ValidationFailed` if the corpus fails a threshold.
    """
    from stillhouse.pipeline.graph import ARTIFACTS, graph_of
    from stillhouse.pipeline.recipe_run import chosen_steps, run_recipe
    from stillhouse.pipeline.recipe_settings import read_settings, with_sections
    from stillhouse.pipeline.recipes import configs, load_recipe, moved
    from stillhouse.pipeline.step_command import environment

    prepare_threads()
    folder = Path(folder)
    path = folder / "params.yaml"
    if not path.is_file():
        raise InputError(f"{path} does not exist; stillhouse.new({str(folder)!r}, source) makes it")
    recipe = moved(load_recipe(path), folder, Path())
    recipe = with_sections(recipe, read_settings(json.dumps(settings or {}, default=str), recipe, str(path)))
    steps = graph_of(recipe, str(path))
    with environment(Namespace(work=None, device=None, quiet=False), folder):
        run_recipe(chosen_steps(steps, until), configs(recipe, str(path)), folder / ARTIFACTS, path)
    return Run(folder, recipe)
