"""The graph of a whole run is well formed."""

from __future__ import annotations

from pathlib import Path

import pytest

from stillhouse.steps.registry import steps
from stillhouse.workflow.graph import APART, USES, Use, find_uses, graph_of
from stillhouse.workflow.recipes import find_recipe, load_recipe

ROOT = Path(__file__).resolve().parents[2]


def test_names_are_unique_and_fit_every_surface() -> None:
    names = [use.name for use in USES]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() and name == name.lower() for name in names)


def test_every_step_is_used() -> None:
    assert {use.step_name for use in (*USES, *APART)} == set(steps())


@pytest.mark.parametrize("use", USES, ids=lambda use: use.name)
def test_inputs_come_from_outputs_of_earlier_uses(use: Use) -> None:
    earlier = {}
    for other in USES:
        if other.name == use.name:
            break
        earlier |= {f"{other.name}/{port.name}": port for port in other.step.outputs}
    assert all(port.optional or port.keys(use.inputs) for port in use.step.inputs)
    for key, source in use.inputs.items():
        assert source in earlier, f"{source} is written by no earlier use"
        assert earlier[source].kind == use.step.port_of(key).kind


def test_evaluation_reads_every_run_and_training() -> None:
    made = {f"{use.name}/{port}" for use in USES for port in use.output_paths() if port in ("run", "curves")}
    assert sorted(find_uses()["evaluate"].inputs.values()) == sorted({"ingest/corpus", *made})


def test_retrievers_start_from_the_same_pretrained_encoder() -> None:
    """SimLM §3.2 and CDMAE §3.4: no stage continues from the one before."""
    starts = {name: find_uses()[name].inputs["encoder"] for name in ("retriever_1", "retriever_2", "distilled")}
    assert set(starts.values()) == {"pretraining/encoder"}
    assert find_uses()["retriever_1_unpretrained"].inputs["encoder"] == "fetch_model/encoder"


def test_the_repository_runs_the_shipped_recipe_of_the_sample() -> None:
    """params.yaml equals stillhouse/recipes/labelled.yaml except for the path of the sample, which DVC tracks.

    DVC needs every section that a stage names, even an empty one.
    """
    own, shipped = (load_recipe(path) for path in (ROOT / "params.yaml", find_recipe("labelled")))
    assert set(own) == {"stages", *(use.section for use in graph_of(own))}
    assert own["ingest"].pop("source") == "stillhouse/sample" and shipped["ingest"].pop("source") == "sample"
    assert {name: section for name, section in own.items() if section} == shipped
