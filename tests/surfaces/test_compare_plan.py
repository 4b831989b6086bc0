"""Where a comparison puts what it makes: what is the same is made once, what differs is kept apart."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from stillhouse.comparison.sweep import filled, make_sweep, read_sweep
from stillhouse.errors import InputError
from stillhouse.graph import USES, find_uses, needed
from stillhouse.surfaces.compare_dvc import queue
from stillhouse.surfaces.compare_graph import refuse_other_graphs
from stillhouse.surfaces.compare_plan import Plan, make_plan
from stillhouse.surfaces.sweeps import listing, problem_of, shipped_sweeps

RECIPE: dict[str, dict[str, Any]] = {"pretraining": {"objective": "cdmae"}, "retriever_1": {"batch_size": 16}}


def plan(variants: list[dict[str, Any]], **content: Any) -> Plan:
    return make_plan(make_sweep("trial", {"variants": variants} | content, "trial"), RECIPE, "recipe")


def places(made: Plan, variant: str, seed: int = 42) -> dict[str, str]:
    [job] = [job for job in made.jobs if (job.variant, job.seed) == (variant, seed)]
    return {name: place.as_posix() for name, place in job.places.items()}


NONE = {"name": "none", "pretraining": False}
MLM = {"name": "mlm", "overrides": {"pretraining.objective": "mlm"}}
BEFORE = ("fetch_model", "fetch_generator", "ingest", "validate", "tokenize", "importance", "lm_head", "lexical")


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


def test_an_earlier_setting_moves_what_depends_on_it() -> None:
    layers = {"name": "four", "overrides": {"fetch_model.layers": 4}}
    found = places(plan([{"name": "all"}, layers]), "four")
    assert found["ingest"] == found["lexical"] == "shared"
    assert found["fetch_model"] == found["tokenize"] == found["lm_head"] == "four"
    assert found["pretraining"] == "four/seed-42"


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
    by_name = {job.variant: {use.name: use for use in job.uses} for job in made.jobs}
    unpretrained = find_uses()["retriever_1_unpretrained"]
    assert by_name["none"]["retriever_1"].inputs == unpretrained.inputs
    assert by_name["mlm"]["retriever_1"] == find_uses()["retriever_1"]
    none, mlm = made.jobs
    assert none.configs["retriever_1"] == mlm.configs["retriever_1"]


def test_a_variant_may_start_a_training_from_another_model() -> None:
    other = {"name": "pretrained", "inputs": {"reranker.init": "pretraining/encoder"}}
    made = plan([{"name": "start"}, other], retriever="reranked", seeds=[1])
    start, pretrained = ({use.name: use for use in job.uses} for job in made.jobs)
    assert start["reranker"] == find_uses()["reranker"]
    assert pretrained["reranker"].inputs == {**start["reranker"].inputs, "init": "pretraining/encoder"}
    assert pretrained["evaluate"].inputs["run/reranked"] == "reranked_run/run"
    found = places(made, "pretrained", 1)
    assert found["retriever_2"] == found["mine_2"] == "shared/seed-1" and found["reranker"] == "pretrained/seed-1"
    assert "distilled" not in found
    for refuse in (lambda: refuse_other_graphs(made.sweep, "it"), lambda: queue(made, Path(), print, dry_run=True)):
        with pytest.raises(InputError, match=r"pretrained gives reranker\.init another input"):
            refuse()
    build_comparison = pytest.importorskip("pipelines.compare").build_comparison
    with pytest.raises(InputError, match=r"pretrained gives reranker\.init another input"):
        build_comparison(made)


def ancestors(name: str, uses: Iterable[Any]) -> set[str]:
    """By recursion, independent of the order of the graph."""
    by_name = {use.name: use for use in uses}
    return {name}.union(*(ancestors(source.split("/")[0], uses) for source in by_name[name].inputs.values()))


@pytest.mark.parametrize("target", ["retriever_1_run", "distilled_run", "reranked_run", "lexical", "evaluate"])
def test_needed_uses_are_the_ancestors_in_order(target: str) -> None:
    found = [use.name for use in needed(USES, [target])]
    assert set(found) == ancestors(target, USES)
    assert found == [use.name for use in USES if use.name in found]


BAD = {
    "a setting": ([{"name": "a", "overrides": {"pretraining.objektive": "mlm"}}], {}, "unknown setting 'objektive'"),
    "a value": ([{"name": "a", "overrides": {"pretraining.objective": "mml"}}], {}, "did you mean 'mlm'"),
    "a use": ([{"name": "a", "overrides": {"pretrainings.objective": "mlm"}}], {}, "did you mean 'pretraining'"),
    "settings that do not go together": (
        [{"name": "a", "overrides": {"pretraining.objective": "simlm", "pretraining.encoder_mask": 0.8}}],
        {},
        "must be at least encoder_mask",
    ),
    "an override of all": ([MLM], {"overrides": {"retriever_1.batchsize": 3}}, "did you mean 'batch_size'"),
    "an input": ([{"name": "a", "inputs": {"reranker.inid": "lm_head/encoder"}}], {}, "no input 'reranker.inid'"),
    "an output": ([{"name": "a", "inputs": {"reranker.init": "pretraining/encodr"}}], {}, "mean 'pretraining/encoder'"),
    "an output of another kind": (
        [{"name": "a", "inputs": {"reranker.init": "lexical/negatives"}}],
        {},
        "reranker.init cannot be 'lexical/negatives'",
    ),
    "an output that comes later": (
        [{"name": "a", "inputs": {"retriever_1.encoder": "retriever_2/retriever"}}],
        {},
        "retriever_1.encoder cannot be 'retriever_2/retriever'",
    ),
    "a retriever": ([MLM], {"retriever": "retriever_3"}, "did you mean"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_settings_are_refused_before_anything_runs(case: str) -> None:
    variants, content, message = BAD[case]
    with pytest.raises(InputError, match=message) as refusal:
        plan(variants, **content)
    assert "trial" in str(refusal.value)


@pytest.mark.parametrize("name", shipped_sweeps())
def test_shipped_sweeps_name_settings_that_there_are(name: str) -> None:
    sweep = read_sweep(shipped_sweeps()[name])
    sweep = filled(sweep, dict.fromkeys(sweep.arguments, "somewhere"))
    made = make_plan(sweep, {}, "defaults")
    assert len(made.jobs) == len(sweep.variants) * len(sweep.seeds)


def test_the_listing_names_what_a_sweep_needs_and_why_it_cannot_be_run() -> None:
    text = listing({}, "recipe")
    assert all(f"{name}: " in text for name in shipped_sweeps())
    assert "needs --with general=VALUE" in text
    bad = make_sweep("bad", {"variants": [{"name": "a", "overrides": {"pretraining.objective": "mml"}}]}, "bad")
    assert "did you mean 'mlm'" in problem_of(bad, {}, "recipe")


def test_one_seed_is_done_for_all_variants_before_the_next() -> None:
    made = plan([NONE, MLM], seeds=[2, 1])
    assert [(job.seed, job.variant) for job in made.jobs] == [(2, "none"), (2, "mlm"), (1, "none"), (1, "mlm")]
    assert made.jobs[0].output("pretraining", "curves") is None
    assert made.jobs[1].output("pretraining", "curves") == Path("mlm/seed-2/artifacts/pretraining/curves")
