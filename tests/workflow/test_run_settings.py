"""The field `settings` of a run's form: JSON that overrides all other fields and is checked before training."""

from __future__ import annotations

import json
from typing import Any

import pytest
from stillhouse.kubernetes.pods.task import describe_use, works_of

from stillhouse.config import build
from stillhouse.errors import InputError
from stillhouse.kubernetes.pods.run_control import refuse_run
from stillhouse.kubernetes.pods.run_parameters import check_train
from stillhouse.pipelines.catalog import Request
from stillhouse.pipelines.ir import compile_small
from stillhouse.pipelines.train import build_pipeline
from stillhouse.workflow.graph import known_uses
from stillhouse.workflow.recipe_settings import with_sections

RECIPE = {"retriever_1": {"learning_rate": "2e-5", "epochs": 3, "warmup_steps": 10}}


def works(settings: str, **values: Any) -> dict[str, Any]:
    """Return the settings of two uses as their task has them. The form sets the learning rate of both."""
    logged = {}
    for name in ("retriever_1", "retriever_2"):
        use = known_uses({})[name]
        section = RECIPE.get(name, {})
        logged[name] = describe_use(use, section, build(use.step.config, section, name))
        logged[name]["chosen"] = {"learning_rate": "learning_rate"}
    return {work.use.name: work for work in works_of(logged, {"settings": settings, **values})}


def test_the_settings_field_overrides_recipe_and_form() -> None:
    found = works('{"retriever_1": {"learning_rate": 1e-3, "temperature": 1}}', learning_rate=5e-5)
    first, second = found["retriever_1"], found["retriever_2"]
    assert (first.config.learning_rate, first.config.temperature, first.config.epochs) == (1e-3, 1.0, 3)
    assert second.config.learning_rate == 5e-5
    assert second.config.temperature == type(second.config)().temperature
    # The key of the run cache uses the recipe's section, as if it contained these values.
    assert first.section == {"learning_rate": 1e-3, "epochs": 3, "warmup_steps": 10, "temperature": 1}
    assert second.section == {}


def test_an_empty_field_changes_nothing() -> None:
    for empty in ("", "{}"):
        assert works(empty, learning_rate=5e-5) == works('{"evaluate": {"seed": 1}}', learning_rate=5e-5)


BAD = {
    "no JSON": ("{retriever_1: {}}", "settings is not valid JSON"),
    "no sections": ('{"epochs": 8}', "settings must be sections"),
    "a list": ("[1]", "settings must be sections"),
    "section": ('{"retriver_1": {"epochs": 8}}', "did you mean 'retriever_1'"),
    "setting": ('{"retriever_1": {"epoch": 8}}', "unknown setting 'epoch'; did you mean 'epochs'"),
    "type": ('{"retriever_1": {"batch_size": "eight"}}', "retriever_1.batch_size must be a whole number"),
    "range": ('{"retriever_1": {"batch_size": -1}}', "batch_size"),
    "measure": ('{"evaluate": {"measures": ["RR@10", "best"]}}', "best"),
}


@pytest.mark.parametrize("case", BAD)
def test_unknown_settings_are_refused_before_and_by_the_first_task(
    case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    settings, message = BAD[case]
    with pytest.raises(InputError) as refusal:
        Request("train", "simlm").check({"settings": settings})
    assert message in str(refusal.value)
    with pytest.raises(SystemExit) as end:
        refuse_run("train", {"wanted": "", "recipe": json.dumps(RECIPE), "settings": settings, "seed": 1})
    assert end.value.code == InputError.exit_code and message in capsys.readouterr().err


def test_settings_of_a_stage_that_the_recipe_leaves_out_are_refused() -> None:
    """They would change nothing, as with `--set`. A refresh reads sections that no run does."""
    left_out = {"stages": {"pretraining": "none"}}
    with pytest.raises(InputError, match="settings: recipe leaves 'pretraining' out"):
        check_train(left_out, "recipe", {"settings": '{"pretraining": {"max_steps": 2}}'})
    check_train({}, "recipe", {"settings": '{"pretraining": {"max_steps": 2}}'})
    check_train(left_out, "recipe", {"settings": '{"query_tower": {"max_steps": 2}}'})


def test_settings_that_do_not_go_with_the_form_are_refused() -> None:
    """The form sets all seeds of a run, unless the field sets one of them."""
    fine = {"training_steps": 20, "settings": '{"retriever_1": {"warmup_steps": 5}}'}
    check_train({}, "recipe", fine)
    with pytest.raises(InputError):
        check_train({}, "recipe", fine | {"learning_rate": -1.0})
    check_train({}, "recipe", {"seed": 4, "settings": '{"retriever_1": {"seed": 9}}'})


def test_every_task_of_steps_has_the_field() -> None:
    spec = compile_small(build_pipeline(RECIPE)).spec
    logged = [
        task["inputs"]["parameters"]
        for component in spec["components"].values()
        for task in component.get("dag", {}).get("tasks", {}).values()
        if "steps" in task["inputs"].get("parameters", {})
    ]
    assert len(logged) > 4
    assert all(one["settings"] == {"componentInputParameter": "pipelinechannel--settings"} for one in logged)


def test_sections_take_the_place_of_single_settings() -> None:
    changed = with_sections(RECIPE, {"retriever_1": {"epochs": 1}, "evaluate": {"seed": 2}})
    assert changed == {"retriever_1": {**RECIPE["retriever_1"], "epochs": 1}, "evaluate": {"seed": 2}}
    assert RECIPE["retriever_1"]["epochs"] == 3
