"""The pipeline of a recipe: what it refuses, what a user can set at the start of a run, and where it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from exit_handler import guarded_tasks
from kfp import compiler

from stillhouse.core.errors import InputError
from stillhouse.kubeflow.pipelines.train import build_pipeline
from stillhouse.pipeline.graph import SIMLM_STEPS
from stillhouse.pipeline.graph_steps import stages_of

pytestmark = pytest.mark.usefixtures("here")


def compiled(recipe: dict[str, Any]) -> dict[str, Any]:
    compiler.Compiler().compile(build_pipeline(recipe), "pipeline.yaml")
    return yaml.safe_load(Path("pipeline.yaml").read_text())


def test_a_bad_recipe_is_refused_when_compiled() -> None:
    with pytest.raises(InputError, match=r"recipe: distilled.batch_size must be a whole number"):
        build_pipeline({"distilled": {"batch_size": "8"}})


def test_only_stages_use_kubeflows_cache() -> None:
    """The cache knows an input only by name, but a stage has the digests of what it reads among its arguments."""
    tasks = guarded_tasks(compiled({}))
    cached = {name for name, task in tasks.items() if task["cachingOptions"].get("enableCache")}
    assert cached == {stage.name for stage in stages_of(SIMLM_STEPS)}


def test_the_end_is_reported_after_success_and_failure() -> None:
    [end] = [task for task in compiled({})["root"]["dag"]["tasks"].values() if "triggerPolicy" in task]
    assert end["triggerPolicy"] == {"strategy": "ALL_UPSTREAM_TASKS_COMPLETED"}
    assert end["componentRef"]["name"] == "comp-report-end"
