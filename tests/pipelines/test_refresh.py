"""The refresh as a pipeline: its parameters, its rungs, and what its last task is handed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.refresh import compile_refresh
from stillhouse.refresh.graph import uses_of
from stillhouse.refresh.plan import Rung, Thresholds
from stillhouse.steps.registry import find_step
from stillhouse.surfaces.recipes import find_recipe, load_recipe
from stillhouse.surfaces.refresh_component import MADE


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("refresh") / "refresh.yaml"
    recipe = find_recipe("micro")
    compile_refresh(load_recipe(recipe), str(recipe), path)
    return next(yaml.safe_load_all(path.read_text()))


def groups(compiled: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The tasks of every rung, by the rung that its condition names."""
    found = {}
    for task in compiled["root"]["dag"]["tasks"].values():
        condition = task.get("triggerPolicy", {}).get("condition", "")
        for rung in Rung:
            if f"'{rung}'" in condition:
                found[str(rung)] = compiled["components"][task["componentRef"]["name"]]["dag"]["tasks"]
    return found


def test_parameters_have_the_defaults_of_the_command(compiled: dict[str, Any]) -> None:
    """Only the repository of the releases must be given."""
    declared = compiled["root"]["inputDefinitions"]["parameters"]
    assert [name for name, entry in declared.items() if "defaultValue" not in entry] == ["releases"]
    assert all(entry["description"] for entry in declared.values())
    defaults = {name: entry.get("defaultValue") for name, entry in declared.items()}
    ladder, rules = Thresholds(), find_step("judge").config()
    assert (defaults["fine_tune_above"], defaults["pretrain_above"]) == (ladder.fine_tune_above, ladder.pretrain_above)
    assert {name: defaults[name] for name in ("measure", "alpha", "most_loss")} == {
        name: getattr(rules, name) for name in ("measure", "alpha", "most_loss")
    }


def test_every_rung_has_its_steps_and_a_promotion(compiled: dict[str, Any]) -> None:
    found = groups(compiled)
    assert set(found) == {"index", "fine_tune", "pretrain"}
    for rung, tasks in found.items():
        names = sorted(task["taskInfo"]["name"] for task in tasks.values())
        assert names == sorted([*(use.name for use in uses_of(Rung(rung))), "gate", "promote"])
    before = [task["taskInfo"]["name"] for task in compiled["root"]["dag"]["tasks"].values()]
    assert {"ingest", "validate", "plan"} <= set(before)


def test_the_promotion_is_handed_all_that_its_rung_made(compiled: dict[str, Any]) -> None:
    for rung, tasks in groups(compiled).items():
        [promote] = [task for task in tasks.values() if task["taskInfo"]["name"] == "promote"]
        made = {f"{use.name}/{port.name}" for use in uses_of(Rung(rung)) for port in use.step.outputs}
        given = {MADE[name] for name in promote["inputs"]["artifacts"]}
        assert given == made | {"ingest/corpus", "validate/validation"}


def test_a_corpus_s_place_and_the_plan_are_never_taken_from_kubeflow_s_cache(compiled: dict[str, Any]) -> None:
    tasks = {task["taskInfo"]["name"]: task for task in compiled["root"]["dag"]["tasks"].values()}
    for name in ("ingest", "plan"):
        assert not tasks[name]["cachingOptions"].get("enableCache"), name


@pytest.mark.parametrize("rung", ["index", "fine_tune", "pretrain"])
def test_every_output_of_a_rung_has_a_name_in_the_component(rung: str) -> None:
    made = {f"{use.name}/{port.name}" for use in uses_of(Rung(rung)) for port in use.step.outputs}
    assert made <= set(MADE.values())


def test_the_recipe_travels_with_the_pipeline(compiled: dict[str, Any]) -> None:
    recipe = load_recipe(find_recipe("micro"))
    for task in compiled["root"]["dag"]["tasks"].values():
        if task["taskInfo"]["name"] == "plan":
            text = task["inputs"]["parameters"]["recipe"]["runtimeValue"]["constant"]
            assert yaml.safe_load(text) == recipe


def test_only_known_settings_compile(tmp_path: Path) -> None:
    from stillhouse.errors import InputError

    with pytest.raises(InputError, match="unknown section 'distiled'"):
        compile_refresh({"distiled": {}}, "recipe", tmp_path / "refresh.yaml")
