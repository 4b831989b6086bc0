"""The sweeps that come with Stillhouse, planned: what each row of a paper's table trains, on what, and how."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest

from stillhouse.experiments.comparison.plan import Adjust, Plan, plans
from stillhouse.experiments.comparison.sweep import filled, read_sweep
from stillhouse.experiments.comparison.sweeps import shipped_sweeps
from stillhouse.pipeline.recipes import configs, find_recipe, load_recipe
from stillhouse.pipeline.small import small
from stillhouse.pretraining.pairs.settings import PAIR_OBJECTIVES


@pytest.mark.parametrize("name", shipped_sweeps())
@pytest.mark.parametrize("adjust", [lambda step, config: config, small], ids=["whole", "small"])
def test_shipped_sweeps_are_planned_under_every_condition(name: str, adjust: Adjust) -> None:
    sweep = read_sweep(shipped_sweeps()[name])
    sweep = filled(sweep, dict.fromkeys(sweep.arguments, "somewhere"))
    recipe = load_recipe(find_recipe(sweep.recipe)) if sweep.recipe else {}
    made = plans(sweep, recipe, "recipe", adjust)
    assert list(made) == ([condition.name for condition in sweep.conditions] or [""])
    for under in made.values():
        assert len(under.jobs) == len(sweep.variants) * len(sweep.seeds)
        for job in (under.reference, *under.jobs):
            before: set[str] = set()
            for step in job.steps:
                assert set(step.read_from) <= before, f"{job.name}: {step.name} reads what is not made before it"
                before.add(step.name)
                if "importance" in step.inputs:  # `pretrain` refuses importance of other tokens
                    [counted] = [of for of in job.steps if f"{of.name}/importance" == step.inputs["importance"]]
                    assert counted.inputs["tokens"] == step.inputs["tokens"]


@cache
def planned(sweep: str) -> Mapping[str, Plan]:
    """Return the plans of a shipped sweep by condition, with the recipe of the sweep."""
    made = read_sweep(shipped_sweeps()[sweep])
    recipe = load_recipe(find_recipe(made.recipe))
    return plans(filled(made, dict.fromkeys(made.arguments, "somewhere")), recipe, sweep)


def trained_as(sweep: str, variant: str, condition: str = "") -> dict[str, Any]:
    """Return {step: (inputs, settings)} for one variant of a shipped sweep."""
    [job] = [job for job in planned(sweep)[condition].jobs if job.variant == variant]
    return {step.name: (step.inputs, job.configs[step.name]) for step in job.steps}


def test_the_rows_of_chang_et_al_have_the_models_that_they_name() -> None:
    bow, random = trained_as("chang-table3", "bow_mlp-none", "1-99"), trained_as("chang-table3", "none", "1-99")
    mlm, bm25 = trained_as("chang-table3", "mlm", "80-20"), trained_as("chang-table3", "bm25", "80-20")
    assert (bow["pretraining"][1].pair_encoder, bow["pretraining"][1].learning_rate) == ("bow_mlp", 0)
    assert bow["towers"][1].objective == "none" and bow["retriever_1"][0]["encoder"] == "towers/encoder"
    assert "pretraining" not in random and random["towers"][0]["init"] == "fetch_model/encoder"
    assert random["fetch_model"][1].weights == "random" and random["retriever_1"][0]["encoder"] == "towers/encoder"
    assert mlm["towers"][0]["init"] == "pretraining/encoder" and mlm["pretraining"][1].objective == "mlm"
    for towers in (random["towers"][1], mlm["towers"][1]):
        assert (towers.towers, towers.projection, towers.learning_rate) == ("separate", 512, 0)
    assert set(bm25) == {"ingest", "validate", "bm25", "evaluate"}
    assert [trained_as("chang-table3", "mlm", name)["ingest"][1].reqa_split for name in ("1-99", "5-95", "80-20")] == [
        "1/99",
        "5/95",
        "80/20",
    ]
    widths = {
        row: trained_as("chang-table5", row, "10-90")["pretraining"][1].projection for row in ("ict", "ict+bfs+wlp-256")
    }
    assert widths == {"ict": 128, "ict+bfs+wlp-256": 256}
    assert trained_as("chang-table5", "mlm", "10-90")["towers"][1].projection == 128
    assert trained_as("chang-table5", "wlp-4", "10-90")["fetch_model"][1].layers == 4


def test_the_rows_of_bow_are_pre_trained_on_the_corpora_that_they_name() -> None:
    first = trained_as("bow-table1", "mlm")
    assert first["pretraining"][0]["tokens"] == "wikipedia_tokens/tokens"
    assert first["wikipedia_tokens"][0]["corpus"] == "wikipedia/corpus"
    assert first["mlm_loss"][0] == {"tokens": "tokenize/tokens", "init": "pretraining/encoder"}
    assert trained_as("bow-table1", "none")["mlm_loss"][0]["init"] == "fetch_model/encoder"
    both = trained_as("bow-table5", "bow", "mined")
    assert both["pretraining"][0]["init"] == "general_pretraining/encoder"
    assert both["general_pretraining"][0]["tokens"] == "wikipedia_tokens/tokens"
    assert both["pretraining"][0]["tokens"] == "tokenize/tokens" and both["tokenize"][0]["corpus"] == "ingest/corpus"
    assert both["general_pretraining"][1].objective == both["pretraining"][1].objective == "bow"
    assert "retriever_2" in both and "retriever_2" not in trained_as("bow-table5", "bow", "bm25")
    assert trained_as("bow-table3", "simlm")["general_pretraining"][1].objective == "none"


LIKE_CHANG_WIKIPEDIA = {
    "chang-table3": {"bow_mlp-none", "bow_mlp", "ict+bfs+wlp"},
    "chang-table4": {"bow_mlp-none", "bow_mlp", "ict+bfs+wlp"},
    "chang-table5": {"ict-4", "bfs-4", "wlp-4", "ict", "ict+bfs+wlp", "ict+bfs+wlp-256", "ict+bfs+wlp-512"},
}
"""The rows that are pre-trained with pair tasks."""
OF_A_ROW = {"objective", "pair_encoder", "projection", "learning_rate", "max_steps"}


@pytest.mark.parametrize("name", LIKE_CHANG_WIKIPEDIA)
def test_the_rows_with_pair_tasks_are_pre_trained_as_in_the_recipe(name: str) -> None:
    """One step needs the memory of 64 texts: no GPU has room for all 8,192 pairs at once."""
    path = find_recipe("chang-wikipedia")
    recipe = configs(load_recipe(path), str(path))["pretraining"]
    assert (recipe.mini_batch_size, recipe.gradient_cache, recipe.bucket_steps) == (64, True, None)
    sweep = read_sweep(shipped_sweeps()[name])
    rows = {}
    for variant in sweep.variants:
        steps = trained_as(name, variant.name, sweep.conditions[0].name)
        if "pretraining" in steps:
            rows[variant.name] = steps["pretraining"][1]
    assert {row for row, config in rows.items() if config.objective in PAIR_OBJECTIVES} == LIKE_CHANG_WIKIPEDIA[name]
    for row in LIKE_CHANG_WIKIPEDIA[name]:
        assert dataclasses.replace(rows[row], **{field: getattr(recipe, field) for field in OF_A_ROW}) == recipe, row
    assert (rows["mlm"].gradient_accumulation_steps, rows["mlm"].bucket_steps) == (128, 64)
