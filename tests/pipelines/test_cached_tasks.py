"""What the tasks of a pipeline are told, so that they find themselves in DVC's run cache."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from pipelines.compare import build_comparison
from pipelines.ir import Compiled, compile_small
from pipelines.placement_table import PlacementTable, find_table
from pipelines.refresh import build_refresh
from pipelines.train import build_pipeline
from stillhouse.config import build
from stillhouse.graph import USES, Use, find_uses
from stillhouse.surfaces.cached_step import RUN_CACHE, STAGE, settings_of, stage_text, stage_told
from stillhouse.surfaces.compare_plan import make_plan
from stillhouse.surfaces.recipes import find_recipe, load_recipe
from stillhouse.surfaces.sweeps import sweep_of_flags

SHARDED = {"index": "vectors", "importance": "counts"}
"""The steps before which a corpus is divided, and what they are given of all shards."""


def table(name: str, url: str) -> PlacementTable:
    """A shipped table with another run cache, or none."""
    shipped = find_table(name)
    kinds = {kind: dataclasses.replace(placement, run_cache=url) for kind, placement in shipped.kinds.items()}
    return dataclasses.replace(shipped, kinds=kinds)


def told(compiled: Compiled) -> dict[str, tuple[Use, dict[str, Any]]]:
    """What tasks are told, by the name of their use: the use, and the recipe's section."""
    found = {}
    for executor in compiled.spec["deploymentSpec"]["executors"].values():
        environment = {entry["name"]: entry["value"] for entry in executor["container"].get("env", [])}
        if STAGE in environment:
            assert RUN_CACHE not in environment, "the run's parameter says where"
            assert (
                compiled.spec["root"]["inputDefinitions"]["parameters"]["run_cache"]["defaultValue"] == "s3://bucket/c"
            )
            use, section = stage_told(environment[STAGE])
            found[use.name] = (use, section)
    return found


@pytest.fixture(scope="module")
def sharded() -> dict[str, tuple[Use, dict[str, Any]]]:
    recipe = load_recipe(find_recipe("001-msmarco"))
    return told(compile_small(build_pipeline(recipe, table=table("gpu", "s3://bucket/c"))))


def test_every_use_is_told_its_own_stage(sharded: dict[str, tuple[Use, dict[str, Any]]]) -> None:
    recipe = load_recipe(find_recipe("001-msmarco"))
    for use in USES:
        found, section = sharded.pop(use.name)
        gathered = [SHARDED[use.step_name]] if use.step_name in SHARDED else []
        inputs = {**use.inputs} | {output: f"{use.name}_{output}/{output}" for output in gathered}
        assert found == dataclasses.replace(use, inputs=inputs)
        assert section == recipe.get(use.name, {})
    assert {use.step_name for use, _ in sharded.values()} == {"encode", "count"}
    assert set(sharded) == {f"{use.name}_shard" for use in USES if use.step_name in SHARDED}


def test_the_tasks_of_other_pipelines_are_told_the_recipes_words_too() -> None:
    """Else the same step would have another key there: `micro` names settings that are defaults."""
    recipe = load_recipe(find_recipe("micro"))
    cached = table("cpu", "s3://bucket/c")
    plan = make_plan(sweep_of_flags("none,bow", [], "o"), recipe, "micro")
    for pipeline in (build_refresh(recipe, table=cached), build_comparison(plan, table=cached)):
        found = told(compile_small(pipeline))
        for name in ("ingest", "validate"):
            assert found[name][1] == recipe.get(name, {}), name
        for use, section in found.values():
            assert section == recipe.get(use.section, {}), use.name


def test_a_section_is_told_word_by_word() -> None:
    """2e-5 is text for this reader of YAML, and a number for DVC's: told as a number it would be another key."""
    section = {
        "learning_rate": "2e-5",
        "epochs": 3,
        "temperature": 1.0,
        "title": "Ünlike: 'this', \"that\"",
        "on": "no",
    }
    assert stage_told(stage_text(USES[0], section)) == (USES[0], section)


def test_nothing_is_told_where_no_run_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUN_CACHE, raising=False)
    recipe = load_recipe(find_recipe("micro"))
    assert not told(compile_small(build_pipeline(recipe, table=table("cpu", ""))))
    assert not told(compile_small(build_pipeline(recipe)))


def test_the_variable_of_a_table_of_ones_own_does_too() -> None:
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
    "chosen as it is by default": ({}, {"seed": 42}, {}),
    "back to the default": ({"seed": 7}, {"seed": 42}, {"seed": 42}),
}


@pytest.mark.parametrize("case", SECTIONS)
def test_a_section_is_the_recipes_with_what_was_chosen(case: str) -> None:
    section, chosen, expected = SECTIONS[case]
    config = find_uses()["retriever_1"].step.config
    started = dataclasses.replace(build(config, section, "recipe"), **chosen)
    assert settings_of(started, section) == expected
