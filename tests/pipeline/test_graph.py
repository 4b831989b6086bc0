"""The graph of a whole run is well formed."""

from __future__ import annotations

from pathlib import Path

import pytest

from stillhouse.core.errors import InputError
from stillhouse.pipeline.graph import GRAPHS, USES, graph_of
from stillhouse.pipeline.recipes import SHIPPED, find_recipe, load_recipe, shipped_files
from stillhouse.pipeline.steps.spec import Port, named
from stillhouse.pipeline.uses import stages_of

ROOT = Path(__file__).resolve().parents[2]
SHIPPED_RECIPES = list(shipped_files(SHIPPED))


def test_names_are_unique_and_fit_every_surface() -> None:
    names = [use.name for use in USES]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() and name == name.lower() for name in names)


@pytest.mark.parametrize("graph", GRAPHS)
def test_inputs_come_from_outputs_of_earlier_steps_and_stages(graph: str) -> None:
    earlier: dict[str, Port] = {}
    for use in graph_of({"graph": graph}):
        assert all(port.optional or port.keys(use.inputs) for port in use.step.inputs)
        for key, source in use.inputs.items():
            assert source in earlier, f"{source} is written by no earlier use"
            assert earlier[source].kind == use.step.port_of(key).kind
        earlier |= {f"{use.name}/{port.name}": port for port in use.step.outputs}


@pytest.mark.parametrize("recipe", SHIPPED_RECIPES)
def test_every_step_runs_once_in_a_stage_that_follows_those_it_reads(recipe: str) -> None:
    uses = graph_of(load_recipe(find_recipe(recipe)))
    stages = stages_of(uses)
    assert [use for stage in stages for use in stage.uses] == list(uses), "DVC and `stillhouse run` have one order"
    there: set[str] = set()
    for stage in stages:
        assert set(stage.sources) <= there, stage.name
        there |= {f"{use.name}/{port.name}" for use in stage.uses for port in use.step.outputs}
    assert len(stages) <= 6


@pytest.mark.parametrize("graph", GRAPHS)
def test_evaluation_compares_every_system_and_the_choice_every_retriever(graph: str) -> None:
    uses = {use.name: use for use in graph_of({"graph": graph})}
    runs = {f"{use.name}/run" for use in uses.values() if "run" in use.output_paths()}
    curves = {f"{use.name}/curves" for use in uses.values() if "curves" in use.output_paths()}
    assert set(uses["evaluate"].inputs.values()) == {"ingest/corpus"} | runs | curves
    indexed = {use.inputs["retriever"] for use in uses.values() if use.step_name == "index"}
    assert set(named(uses["best"].inputs, "candidates").values()) == indexed


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
