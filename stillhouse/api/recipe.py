"""A whole recipe: `new` makes a folder to work in, `run` runs it to the winner and its figures."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.api.results import Evaluation, Folder, Winner
from stillhouse.errors import InputError

if TYPE_CHECKING:
    from stillhouse.retrieval.search.searcher import Searcher

EVALUATION, BEST, CORPUS = "evaluate", "best", "ingest"
"""Uses of the graph (stillhouse/workflow/graph.py) that a user asks for after a run."""


@dataclass(frozen=True)
class Run(os.PathLike[str]):
    """What a run of a recipe left in `folder`/artifacts; stands for `folder` wherever one is asked for."""

    folder: Path
    settings: Mapping[str, Mapping[str, Any]]
    """The recipe by sections, as `params.yaml` has it, with the settings that were given to `run`."""

    def __fspath__(self) -> str:
        return str(self.folder)

    def output(self, use: str, name: str) -> Path:
        """The folder of an output, as `run.output("retriever_1", "retriever")`.

        Raises `InputError` where the run made no such output.
        """
        path = self.folder / "artifacts" / use / name
        if not path.is_dir():
            raise InputError(f"the run made no {use}/{name}; the recipe leaves it out, or `until` stopped before it")
        return path

    @property
    def evaluation(self) -> Evaluation:
        """The figures of every system on the test queries, and the report."""
        from stillhouse.artifacts import read_manifest

        folder = self.output(EVALUATION, "evaluation")
        facts = read_manifest(folder).facts
        return Evaluation(folder, {"evaluation": folder}, f"figures of {len(facts['systems'])} systems", {}, facts)

    @property
    def best(self) -> Winner:
        """The retriever that was chosen on the dev questions, with its index and its fusion with BM25."""
        from stillhouse.artifacts import read_manifest

        folders = {name: self.output(BEST, name) for name in ("retriever", "index", "hybrid")}
        facts = read_manifest(folders["hybrid"]).facts
        return Winner(folders["retriever"], folders, "the winner of the dev questions", {}, facts)

    def searcher(self) -> Searcher:
        """The winner over the corpus, loaded for many questions."""
        from stillhouse.retrieval.search.searcher import Searcher

        best = self.best
        return Searcher.open(self.output(CORPUS, "corpus"), best, best.index, best.hybrid)


def new(folder: Folder, source: Folder | None = None, *, recipe: str | None = None, hours: float | None = None) -> Path:
    """Makes a folder to work in, as `stillhouse new` does: `params.yaml`, `dvc.yaml` and a DVC repository.

    `source` is a corpus on the disk or a name that `ingest` knows; without it the recipe's own. Without `recipe` the
    one that fits the source. With `hours` it trains so much less that the run takes at most that on this machine.

    Raises `InputError` where `folder` is such a folder already, for a source or recipe that does not exist, and for
    hours that do not suffice.
    """
    from stillhouse.workflow.new_workspace import make

    if hours is not None and not 0 < hours < float("inf"):
        raise InputError(f"new(): hours must be a number above 0, as 0.5 or 3, not {hours!r}")
    make(Path(folder), None if source is None else os.fspath(source), recipe, hours)
    return Path(folder)


def run(folder: Folder, *, settings: Mapping[str, Mapping[str, Any]] | None = None, until: str | None = None) -> Run:
    """Runs the recipe of a folder that `new` made, in this process: what is up to date is skipped.

    `settings` has settings by sections of `params.yaml` that go before those of the file, as
    `{"retriever_1": {"epochs": 8}}`. `until` names a use (stillhouse/workflow/graph.py): it and what it needs is run,
    not all.

    Raises `InputError` for a folder without `params.yaml`, for unknown sections and settings, and what the steps
    raise; `ValidationFailed` where the corpus breaks a threshold.
    """
    from stillhouse.workflow.graph import ARTIFACTS, graph_of
    from stillhouse.workflow.recipe_run import chosen_uses, run_recipe
    from stillhouse.workflow.recipe_settings import read_settings, with_sections
    from stillhouse.workflow.recipes import configs, load_recipe

    folder = Path(folder)
    path = folder / "params.yaml"
    if not path.is_file():
        raise InputError(f"{path} does not exist; stillhouse.new({str(folder)!r}, source) makes it")
    recipe = load_recipe(path)
    recipe = with_sections(recipe, read_settings(json.dumps(settings or {}), recipe, str(path)))
    uses = graph_of(recipe, str(path))
    with _work_in(folder):
        run_recipe(chosen_uses(uses, until), configs(recipe, str(path)), folder / ARTIFACTS)
    return Run(folder, recipe)


@contextmanager
def _work_in(folder: Path) -> Iterator[None]:
    """Unfinished work lies in the folder itself, unless the environment names a place."""
    from stillhouse.context import WORK_ROOT

    if os.environ.get(WORK_ROOT):
        yield
        return
    os.environ[WORK_ROOT] = str(folder / ".stillhouse" / "work")
    try:
        yield
    finally:
        del os.environ[WORK_ROOT]
