"""Every pipeline of this project by name: how to build it, how to check its parameters, and what it produces."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kfp.dsl.base_component import BaseComponent

from stillhouse.core.config import field_types, from_forms, refuse_unknown
from stillhouse.core.errors import REFUSED_CODE, InputError
from stillhouse.core.setting_kinds import form_type, from_text
from stillhouse.experiments.comparison.plan import make_plan
from stillhouse.experiments.comparison.sweeps import find_sweep
from stillhouse.kubeflow.pipelines import compare, refresh, train, zero_shot
from stillhouse.kubeflow.pipelines.placement_table import PlacementTable
from stillhouse.kubeflow.pods.run_parameters import SETTINGS, hint_of, parameters_of, recipe_of_run
from stillhouse.kubeflow.pods.zero_shot import Config as ZeroShotConfig
from stillhouse.pipeline.graph import graph_of
from stillhouse.pipeline.graph_steps import step_of
from stillhouse.pipeline.recipe_settings import with_settings
from stillhouse.pipeline.recipes import find_recipe, load_recipe
from stillhouse.releases.refresh.graph import CHOSEN
from stillhouse.releases.refresh.plan import Parameters


@dataclass(frozen=True)
class Result:
    """The output of a run that the user keeps: its name, the page inside it, and the components that may write it.

    The first of these components that ran counts. In a `validated` run, a corpus that does not pass ends it.
    """

    components: tuple[str, ...]
    output: str
    page: str
    validated: bool = True
    artifact: str = ""
    """The component's name for it and its folder, if different."""


RESULTS: Mapping[str, Result] = {
    train.NAME: Result(("evaluation",), "evaluation", "report.html", artifact="folder/evaluate/evaluation"),
    compare.NAME: Result(("compare-variants",), "comparison", "comparison.html"),
    zero_shot.NAME: Result(("measure-zero-shot",), "zero_shot", "zero_shot.html", validated=False),
    refresh.NAME: Result(("release-refresh", "plan-refresh"), "refreshed", "refresh.md"),
}
RECIPES: Mapping[str, str] = {train.NAME: "labelled", compare.NAME: "simlm", refresh.NAME: "labelled"}
"""The default recipes of pipelines; comparisons compare pre-training methods."""
CONFIGS: Mapping[str, type] = {zero_shot.NAME: ZeroShotConfig, refresh.NAME: Parameters}
"""The pipelines with their own settings; the parameters of the others set settings of steps."""
SEARCHED = ("ingest/corpus", *(CHOSEN[name] for name in ("retriever", "index", "hybrid")))
"""What `stillhouse search` and `serve` read in a workspace: the corpus and the winner of a run."""


@dataclass(frozen=True)
class Request:
    """A pipeline and what is fixed when it is compiled: its recipe and, for a comparison, its sweep."""

    pipeline: str
    recipe: str = ""
    """A shipped recipe or a file; "" = the pipeline's default in `RECIPES`."""
    sweep: str = "all-objectives"
    """A shipped sweep or a file."""
    settings: tuple[str, ...] = ()
    """Settings that replace the recipe's, each as `STAGE.SETTING=VALUE`."""

    def __post_init__(self) -> None:
        refuse_unknown(self.pipeline, RESULTS, "there is no pipeline")
        if self.settings and self.pipeline not in RECIPES:
            raise InputError(f"--set {self.settings[0]}: {self.pipeline} has no recipe; use --parameter instead")

    def build(self, table: PlacementTable | None) -> BaseComponent:
        """The pipeline, with its tasks placed by `table`. Raises `InputError` for a wrong recipe or sweep."""
        if self.pipeline == zero_shot.NAME:
            return zero_shot.build_zero_shot(table)
        if self.pipeline == compare.NAME:
            return compare.build_comparison(make_plan(find_sweep(self.sweep), *self._recipe()), table)
        build_of = refresh.build_refresh if self.pipeline == refresh.NAME else train.build_pipeline
        return build_of(*self._recipe(), table)

    def check(self, values: Mapping[str, Any]) -> None:
        """Refuses parameters as the run's own tasks would: types, choices, ranges and conflicts."""
        if self.pipeline in CONFIGS:
            from_forms(CONFIGS[self.pipeline], values, f"pipeline {self.pipeline}")
            return
        recipe_of_run(*self._recipe(), values)

    def read(self, given: Mapping[str, str]) -> dict[str, Any]:
        """The parameters in `given`, converted from command-line text to their types."""
        kinds = self.kinds()
        for name in given:
            refuse_unknown(name, kinds, f"pipeline {self.pipeline} has no parameter")
        return {name: from_text(text, kinds[name], f"--parameter {name}") for name, text in given.items()}

    def kinds(self) -> dict[str, type]:
        """The types of the parameters, without the parameters from placements."""
        if self.pipeline in CONFIGS:
            return {name: form_type(hint) for name, hint in field_types(CONFIGS[self.pipeline]).items()}
        fields = {name: form_type(hint_of(step, name)) for name, step in parameters_of(*self._recipe()).items()}
        return fields | ({SETTINGS: str} if self.pipeline == train.NAME else {})

    def kept(self) -> tuple[str, ...]:
        """The outputs, as `step/output`, that a local run keeps beside its result, if its recipe chooses a winner."""
        made = {step.name for step in graph_of(*self._recipe())} if self.pipeline == train.NAME else set()
        return SEARCHED if made >= {step_of(source) for source in SEARCHED} else ()

    def exit_code(self, result: Path) -> int:
        """The exit code of `stillhouse refresh` if a refresh refused its challenger, else 0."""
        if self.pipeline != refresh.NAME:
            return 0
        record = json.loads((result / "refresh.json").read_text(encoding="utf-8"))
        return REFUSED_CODE if record.get("outcome") == "refused" else 0

    def _recipe(self) -> tuple[dict[str, Any], str]:
        """The recipe and its file. Raises `InputError` for a wrong recipe."""
        path = find_recipe(self.recipe or RECIPES[self.pipeline])
        recipe = load_recipe(path)
        return (with_settings(recipe, self.settings, str(path)) if self.settings else recipe), str(path)
