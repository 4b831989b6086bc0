"""Where a comparison puts its results: shared work is done once, different work is kept apart."""

from __future__ import annotations

from typing import Any

import pytest

from stillhouse.core.errors import InputError
from stillhouse.experiments.comparison.plan import Plan, make_plan, plans
from stillhouse.experiments.comparison.sweep import make_sweep
from stillhouse.pipeline.graph import known_steps

RECIPE: dict[str, dict[str, Any]] = {"pretraining": {"objective": "cdmae"}, "retriever_1": {"batch_size": 16}}


def plan(variants: list[dict[str, Any]], **content: Any) -> Plan:
    return make_plan(make_sweep("trial", {"variants": variants} | content, "trial"), RECIPE, "recipe")


def places(made: Plan, variant: str, seed: int = 42) -> dict[str, str]:
    [job] = [job for job in made.jobs if (job.variant, job.seed) == (variant, seed)]
    return {name: place.as_posix() for name, place in job.places.items()}


NONE = {"name": "none", "pretraining": False}
MLM = {"name": "mlm", "overrides": {"pretraining.objective": "mlm"}}
BEFORE = ("fetch_model", "fetch_generator", "ingest", "validate", "tokenize", "importance", "lm_head", "bm25")


def test_what_comes_before_pre_training_is_shared_by_all() -> None:
    made = plan([NONE, MLM], seeds=[1, 2])
    mlm, none = places(made, "mlm", 2), places(made, "none", 1)
    assert {name: mlm[name] for name in BEFORE} == dict.fromkeys(BEFORE, "shared")
    assert {place for name, place in mlm.items() if name not in BEFORE} == {"mlm/seed-2"}
    assert none["retriever_1"] == none["evaluate"] == "none/seed-1"
    assert not {"pretraining", "tokenize", "importance", "lm_head"} & none.keys()
    assert "retriever_2" not in mlm and "mine_1" not in mlm


def test_pre_training_is_shared_where_only_fine_tuning_is_varied() -> None:
    batch = {"name": "b8", "overrides": {"retriever_1.batch_size": 8}}
    mine = places(plan([{"name": "b16"}, batch], seeds=[1]), "b8", 1)
    assert mine["pretraining"] == "shared/seed-1" and mine["retriever_1"] == "b8/seed-1"


def test_every_training_after_the_shared_ones_has_the_seed() -> None:
    made = plan([MLM], seeds=[7], retriever="retriever_2")
    [job] = made.jobs
    seeds = {name: getattr(config, "seed", None) for name, config in job.configs.items()}
    assert {name for name, seed in seeds.items() if seed == 7} == {
        "pretraining",
        "retriever_1",
        "mine_1",
        "retriever_2",
    }
    assert job.configs["lm_head"].seed == 42 and job.configs["retriever_1"].batch_size == 16


def test_without_pre_training_the_start_is_fine_tuned_by_the_same_settings() -> None:
    made = plan([NONE, MLM])
    by_name = {job.variant: {step.name: step for step in job.steps} for job in made.jobs}
    unpretrained = known_steps({})["retriever_1_unpretrained"]
    assert by_name["none"]["retriever_1"].inputs == unpretrained.inputs
    assert by_name["mlm"]["retriever_1"] == known_steps({})["retriever_1"]
    none, mlm = made.jobs
    assert none.configs["retriever_1"] == mlm.configs["retriever_1"]


def test_a_variant_may_start_a_training_from_another_model() -> None:
    other = {"name": "pretrained", "inputs": {"reranker.init": "pretraining/encoder"}}
    made = plan([{"name": "start"}, other], retriever="reranked", seeds=[1])
    start, pretrained = ({step.name: step for step in job.steps} for job in made.jobs)
    assert start["reranker"] == known_steps({})["reranker"]
    assert pretrained["reranker"].inputs == {**start["reranker"].inputs, "init": "pretraining/encoder"}
    assert pretrained["evaluate"].inputs["run/reranked"] == "reranked_run/run"
    found = places(made, "pretrained", 1)
    assert found["retriever_2"] == found["mine_2"] == "shared/seed-1" and found["reranker"] == "pretrained/seed-1"
    assert "distilled" not in found


BAD: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "a setting": ([{"name": "a", "overrides": {"pretraining.objektive": "mlm"}}], {}, "unknown setting 'objektive'"),
    "a value": ([{"name": "a", "overrides": {"pretraining.objective": "mml"}}], {}, "did you mean 'mlm'"),
    "a step": ([{"name": "a", "overrides": {"pretrainings.objective": "mlm"}}], {}, "did you mean 'pretraining'"),
    "settings that do not go together": (
        [{"name": "a", "overrides": {"pretraining.objective": "simlm", "pretraining.encoder_mlm_probability": 0.8}}],
        {},
        "must be at least encoder_mlm_probability",
    ),
    "an override of all": ([MLM], {"overrides": {"retriever_1.batchsize": 3}}, "did you mean 'batch_size'"),
    "an input": ([{"name": "a", "inputs": {"reranker.inid": "lm_head/encoder"}}], {}, "has no input 'inid'"),
    "an output": ([{"name": "a", "inputs": {"reranker.init": "pretraining/encodr"}}], {}, "mean 'pretraining/encoder'"),
    "an output of another kind": (
        [{"name": "a", "inputs": {"reranker.init": "bm25/negatives"}}],
        {},
        "stages.reranker: init cannot be 'bm25/negatives'",
    ),
    "an output that comes later": (
        [{"name": "a", "inputs": {"retriever_1.encoder": "retriever_2/retriever"}}],
        {},
        "form a cycle",
    ),
    "a retriever": ([MLM], {"retriever": "retriever_3"}, "did you mean"),
    "a stage": ([MLM], {"stages": {"own": {"step": "ingset"}}}, "stages.own: there is no step 'ingset'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings_are_refused_before_anything_runs(case: str) -> None:
    variants, content, message = BAD[case]
    with pytest.raises(InputError, match=message) as refusal:
        plan(variants, **content)
    assert "trial" in str(refusal.value)


def under(variants: list[dict[str, Any]], conditions: list[dict[str, Any]], **content: Any) -> dict[str, Plan]:
    sweep = make_sweep("trial", {"variants": variants, "conditions": conditions} | content, "trial")
    return plans(sweep, RECIPE, "recipe")


def same_places(first: dict[str, str], second: dict[str, str]) -> bool:
    """Return whether both have the same place for each common step, at least from the corpus to retriever 1."""
    both = first.keys() & second.keys()
    return {"ingest", "bm25", "pretraining", "retriever_1"} <= both and all(first[u] == second[u] for u in both)


def test_conditions_share_what_they_do_not_change() -> None:
    stages = [{"name": "first"}, {"name": "second", "retriever": "retriever_2"}]
    made = under([NONE, MLM], stages)
    first, second = places(made["first"], "mlm"), places(made["second"], "mlm")
    assert first.pop("evaluate") == "first/mlm/seed-42" and second.pop("evaluate") == "second/mlm/seed-42"
    assert first["retriever_1"] == "mlm/seed-42" and same_places(first, second)
    assert made["first"].reference.places["evaluate"].as_posix() == "first/shared"
    split = {"ingest.reqa_split": "1/99"}
    data = [{"name": "some", "overrides": split}, {"name": "late", "retriever": "retriever_2", "overrides": split}]
    some, late = (places(of, "mlm") for of in under([NONE, MLM], data).values())
    assert some["fetch_model"] == "shared" and some["ingest"] == "some/shared"
    assert some.pop("evaluate") != late.pop("evaluate") and same_places(some, late)


def test_a_variant_may_be_bm25_or_another_retriever() -> None:
    words, late = {"name": "words", "retriever": "bm25"}, {"name": "late", "retriever": "retriever_2"}
    made = plan([words, late, MLM])
    by_name = {job.variant: job for job in made.jobs}
    assert {name: job.run.parts[-2] for name, job in by_name.items()} == {
        "words": "bm25",
        "late": "retriever_2_run",
        "mlm": "retriever_1_run",
    }
    assert [step.name for step in by_name["words"].steps] == ["ingest", "validate", "bm25", "evaluate"]
    with pytest.raises(InputError, match="variant a: retriever 'bm52'; did you mean 'bm25'"):
        plan([{"name": "a", "retriever": "bm52"}])


def test_losses_are_read_from_the_trainings_that_they_name() -> None:
    stages = {"loss": {"step": "pretrain", "tokens": "tokenize/tokens", "init": "pretraining/encoder"}}
    made = plan([NONE, MLM, {"name": "words", "retriever": "bm25"}], stages=stages, losses={"MLM loss": "loss"})
    none, mlm, words = ({step.name: step for step in job.steps} for job in made.jobs)
    assert none["loss"].inputs["init"] == "fetch_model/encoder" and mlm["loss"].inputs["init"] == "pretraining/encoder"
    assert "loss" not in words
    with pytest.raises(InputError, match="losses: there is no training 'los'; did you mean 'loss'"):
        plan([MLM], stages=stages, losses={"MLM loss": "los"})
