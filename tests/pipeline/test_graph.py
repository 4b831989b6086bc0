"""The graph of a whole run is well formed."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_stages import well_formed

from stillhouse.core.errors import InputError
from stillhouse.pipeline.graph import GRAPHS, SIMLM_STEPS, graph_of
from stillhouse.pipeline.graph_steps import stages_of
from stillhouse.pipeline.recipes import SHIPPED, find_recipe, load_recipe, shipped_files
from stillhouse.pipeline.steps.spec import named

ROOT = Path(__file__).resolve().parents[2]
SHIPPED_RECIPES = list(shipped_files(SHIPPED))


def test_names_are_unique_and_fit_every_surface() -> None:
    names = [step.name for step in SIMLM_STEPS]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() and name == name.lower() for name in names)


@pytest.mark.parametrize("graph", GRAPHS)
def test_inputs_come_from_outputs_of_earlier_steps_and_stages(graph: str) -> None:
    well_formed(graph_of({"graph": graph}))


@pytest.mark.parametrize("recipe", SHIPPED_RECIPES)
def test_every_step_runs_once_in_a_stage_that_follows_those_it_reads(recipe: str) -> None:
    steps = graph_of(load_recipe(find_recipe(recipe)))
    stages = stages_of(steps)
    assert [step for stage in stages for step in stage.steps] == list(steps), "DVC and `stillhouse run` have one order"
    there: set[str] = set()
    for stage in stages:
        assert set(stage.sources) <= there, stage.name
        there |= {f"{step.name}/{port.name}" for step in stage.steps for port in step.spec.outputs}
    assert len(stages) <= 6


@pytest.mark.parametrize("graph", [name for name in GRAPHS if name != "pretraining"])
def test_evaluation_compares_every_system_and_the_choice_every_retriever(graph: str) -> None:
    steps = {step.name: step for step in graph_of({"graph": graph})}
    shown = {f"{step.name}/{port}" for step in steps.values() for port in {"run", "curves"} & set(step.output_paths())}
    assert set(steps["evaluate"].inputs.values()) == {"ingest/corpus"} | shown
    indexed = {step.inputs["retriever"] for step in steps.values() if step.kind == "index"}
    apart = {"distilled/retriever"} & indexed if graph == "unlabelled" else set()  # only its average competes
    assert set(named(steps["best"].inputs, "candidates").values()) == indexed - apart


def test_an_unknown_graph_is_named() -> None:
    with pytest.raises(InputError, match="there is no graph 'labeled'; did you mean 'labelled'"):
        graph_of({"graph": "labeled"})
    with pytest.raises(InputError, match="there is no graph"):
        graph_of({"graph": {"a": 1}})


def test_the_repository_runs_the_shipped_recipe_of_the_sample() -> None:
    """params.yaml equals stillhouse/recipes/labelled.yaml except for the path of the sample, which DVC tracks."""
    own, shipped = (load_recipe(path) for path in (ROOT / "params.yaml", find_recipe("labelled")))
    assert own["ingest"].pop("source") == "stillhouse/sample" and shipped["ingest"].pop("source") == "sample"
    assert own == shipped
