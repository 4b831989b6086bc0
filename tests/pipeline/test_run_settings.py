"""The field `settings` of a run's form: JSON that overrides all other fields and is checked before training."""

from __future__ import annotations

import json
from typing import Any

import pytest

from stillhouse.core.errors import InputError
from stillhouse.kubeflow.pipelines.catalog import Request
from stillhouse.kubeflow.pods.run_control import check_run
from stillhouse.kubeflow.pods.run_parameters import recipe_of_run
from stillhouse.pipeline.recipes import configs

RECIPE = {"retriever_1": {"learning_rate": "2e-5", "epochs": 3, "warmup_steps": 10}}


def of_run(settings: str, **values: Any) -> dict[str, Any]:
    """The settings of every step in a run with these parameters."""
    return configs(recipe_of_run(RECIPE, "recipe", {"settings": settings, **values}), "recipe")


def test_the_settings_field_overrides_recipe_and_form() -> None:
    sections = '{"retriever_1": {"learning_rate": 1e-3, "temperature": 1}, "ingest": {"source": "theirs"}}'
    found = of_run(sections, source="mine", queries="auto", test_queries="")
    first, ingest = found["retriever_1"], found["ingest"]
    assert (first.learning_rate, first.temperature, first.epochs) == (1e-3, 1.0, 3)
    assert (ingest.source, ingest.queries, ingest.test_queries) == ("theirs", "auto", None)
    assert found["retriever_2"].temperature == type(first)().temperature


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
        check_run("train", {"recipe_text": json.dumps(RECIPE), "settings": settings, "model": "mine"})
    assert end.value.code == InputError.exit_code and message in capsys.readouterr().err


def test_settings_of_a_stage_that_the_recipe_has_not_are_refused() -> None:
    """They would change nothing, as with `--set`."""
    other = {"graph": "labelled"}
    with pytest.raises(InputError, match="settings: recipe has no section 'pretraining'"):
        recipe_of_run(other, "recipe", {"settings": '{"pretraining": {"max_steps": 2}}'})
    recipe_of_run({}, "recipe", {"settings": '{"pretraining": {"max_steps": 2}}'})
