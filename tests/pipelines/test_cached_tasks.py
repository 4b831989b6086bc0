"""The tasks of a pipeline receive what they need to find their stages in DVC's run cache."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from stillhouse.config import build
from stillhouse.experiments.comparison.plan import make_plan
from stillhouse.experiments.comparison.sweeps import sweep_of_flags
from stillhouse.kubernetes.pods.cached_step import RUN_CACHE, settings_of
from stillhouse.kubernetes.pods.task import as_json, describe_use, works_of
from stillhouse.pipelines.compare import build_comparison
from stillhouse.pipelines.ir import Compiled, compile_small
from stillhouse.pipelines.placement_table import PlacementTable, find_table
from stillhouse.pipelines.refresh import build_refresh
from stillhouse.pipelines.train import build_pipeline
from stillhouse.workflow.graph import USES, Use, find_uses
from stillhouse.workflow.recipes import find_recipe, load_recipe


def table(name: str, url: str) -> PlacementTable:
    """A shipped table with another run cache, or none."""
    shipped = find_table(name)
    kinds = {kind: dataclasses.replace(placement, run_cache=url) for kind, placement in shipped.kinds.items()}
    return dataclasses.replace(shipped, kinds=kinds)


def logged(compiled: Compiled) -> dict[str, tuple[Use, dict[str, Any]]]:
    """Return what the tasks receive, by the name of a use: the use, and its section of the recipe."""
    found: dict[str, tuple[Use, dict[str, Any]]] = {}
    for component in compiled.spec["components"].values():
        for task in component.get("dag", {}).get("tasks", {}).values():
            given = task["inputs"]["parameters"]
            if "steps" in given:
                assert "pipelinechannel--run_cache" in given, "the run's parameter says where"
                steps = json.loads(given["steps"]["runtimeValue"]["constant"])
                shapes = {
                    name: {key: value for key, value in of.items() if key != "chosen"} for name, of in steps.items()
                }
                found |= {work.use.name: (work.use, dict(work.section)) for work in works_of(shapes, {})}
    return found


def test_every_task_carries_the_stage_of_its_use() -> None:
    recipe = load_recipe(find_recipe("simlm-msmarco"))
    found = logged(compile_small(build_pipeline(recipe, table=table("gpu", "s3://bucket/c"))))
    assert found == {use.name: (use, recipe.get(use.name, {})) for use in USES}, "divided or not, it has one key"


def test_tasks_of_other_pipelines_carry_the_recipe_sections_too() -> None:
    """Otherwise the same step would have another cache key there, because `micro` names settings that are defaults."""
    recipe = load_recipe(find_recipe("micro"))
    cached = table("cpu", "s3://bucket/c")
    plan = make_plan(sweep_of_flags("none,bow", [], "o"), recipe, "micro")
    for pipeline in (build_refresh(recipe, table=cached), build_comparison(plan, table=cached)):
        found = logged(compile_small(pipeline))
        for name in ("ingest", "validate"):
            assert found[name][1] == recipe.get(name, {}), name
        for use, section in found.values():
            assert section == recipe.get(use.section, {}), use.name


WORDS: dict[str, dict[str, Any]] = {
    "retriever_1": {"learning_rate": "2e-5", "epochs": 3, "temperature": 1.0},
    "evaluate": {"title": "Ünlike: 'this', \"that\"", "measures": ["RR@10"]},
}


@pytest.mark.parametrize("name", WORDS)
def test_a_section_is_passed_on_verbatim(name: str) -> None:
    """PyYAML reads 2e-5 as text, DVC as a number. Passed on as a number, it would change the cache key."""
    use, section = find_uses()[name], WORDS[name]
    text = as_json({name: describe_use(use, section, build(use.step.config, section, name))})
    [work] = works_of(json.loads(text), {})
    assert (work.use, work.section) == (use, section)


def test_a_custom_table_may_set_the_run_cache_by_variable() -> None:
    shipped = table("cpu", "")
    kinds = {
        kind: dataclasses.replace(placement, environment={**placement.environment, RUN_CACHE: "/store/search"})
        for kind, placement in shipped.kinds.items()
    }
    compiled = compile_small(build_pipeline({}, table=dataclasses.replace(shipped, kinds=kinds)))
    assert "run_cache" not in compiled.spec["root"]["inputDefinitions"]["parameters"]
    for executor in compiled.spec["deploymentSpec"]["executors"].values():
        environment = {entry["name"]: entry["value"] for entry in executor["container"].get("env", [])}
        assert environment[RUN_CACHE] == "/store/search"


SECTIONS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "as the recipe words it": ({"learning_rate": "2e-5", "epochs": 3}, {}, {"learning_rate": "2e-5", "epochs": 3}),
    "a default that the recipe names": ({"batch_size": 64}, {}, {"batch_size": 64}),
    "chosen otherwise": ({"epochs": 3}, {"epochs": 2.0}, {"epochs": 2.0}),
    "chosen and not in the recipe": ({}, {"seed": 7}, {"seed": 7}),
    "chosen, the same as the default": ({}, {"seed": 42}, {}),
    "back to the default": ({"seed": 7}, {"seed": 42}, {"seed": 42}),
}


@pytest.mark.parametrize("case", SECTIONS)
def test_a_section_is_the_recipes_with_what_was_chosen(case: str) -> None:
    section, chosen, expected = SECTIONS[case]
    config = find_uses()["retriever_1"].step.config
    started = dataclasses.replace(build(config, section, "recipe"), **chosen)
    assert settings_of(started, section) == expected
