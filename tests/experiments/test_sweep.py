"""Sweeps as data: what a file may contain, what flags change, and that every shipped sweep is well formed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from stillhouse.core.errors import InputError
from stillhouse.experiments.comparison.sweep import make_sweep, read_sweep
from stillhouse.experiments.comparison.sweeps import seeds_of, shipped_sweeps, sweep_of_flags

TWO = [{"name": "mlm", "overrides": {"pretraining.objective": "mlm"}}, {"name": "none", "pretraining": False}]


def sweep(**content: Any) -> Any:
    return make_sweep("trial", {"variants": TWO} | content, "trial.yaml")


BAD = {
    "unknown key": ({"varaints": []}, "unknown setting 'varaints'; did you mean 'variants'"),
    "both kinds": ({"grid": {"pretraining.epochs": [1]}}, "either `variants`"),
    "no variant": ({"variants": []}, "at least one variant"),
    "a name for a folder": ({"variants": [{"name": "a/b"}]}, "cannot be called 'a/b'"),
    "a reserved name": ({"variants": [{"name": "shared"}]}, "cannot be called 'shared'"),
    "names that differ by case": ({"variants": [{"name": "A"}, {"name": "a"}]}, "two variants are called"),
    "equal labels": (
        {"variants": [{"name": "a", "label": "x"}, {"name": "b", "label": "x"}]},
        "two variants are labelled 'x'",
    ),
    "a number for a name": ({"variants": [{"name": 7}]}, "put it in quotes"),
    "no setting": ({"variants": [{"name": "a", "overrides": {"objective": "mlm"}}]}, "write STAGE.SETTING"),
    "a list of lists for a value": ({"overrides": {"pretraining.objective": [["mlm"]]}}, "a plain value, or a list"),
    "a seed as a setting": ({"overrides": {"pretraining.seed": 3}}, "list the seeds under `seeds`"),
    "a seed twice": ({"seeds": [1, 1]}, "different whole numbers"),
    "a negative seed": ({"seeds": [-1]}, "whole numbers of at least 0"),
    "an unknown baseline": ({"baseline": "nome"}, "did you mean 'none'?"),
    "published text": ({"variants": [{"name": "a", "published": {"RR@10": "38.0"}}]}, "RR@10 must be a number"),
    "pre-training of none": (
        {"variants": [{"name": "a", "pretraining": False, "overrides": {"pretraining.epochs": 1}}]},
        "cannot change settings of pretraining",
    ),
    "inputs as a list": ({"variants": [{"name": "a", "inputs": ["pretraining/encoder"]}]}, "inputs must map text"),
    "a retriever that is no text": ({"variants": [{"name": "a", "retriever": 2}]}, "retriever must be text"),
    "a condition without a name": ({"conditions": [{"retriever": "retriever_2"}]}, "conditions[0] lacks name"),
    "two conditions": ({"conditions": [{"name": "a"}, {"name": "a"}]}, "two conditions are called 'a'"),
    "a condition's setting": ({"conditions": [{"name": "a", "overrides": {"x": 1}}]}, "write STAGE.SETTING"),
    "a condition's seed": ({"conditions": [{"name": "a", "overrides": {"lm_head.seed": 1}}]}, "list the seeds"),
    "conditions as a mapping": ({"conditions": {"a": {}}}, "must be a list"),
    "stages as a list": ({"stages": ["pretraining"]}, "stages must map"),
    "losses of no text": ({"losses": {"loss": 3}}, "losses: loss must be text"),
    "an empty grid": ({"variants": None, "grid": {}}, "either `variants`"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_sweeps_are_refused_with_their_place(case: str) -> None:
    content, message = BAD[case]
    with pytest.raises(InputError) as refusal:
        sweep(**content)
    assert message in str(refusal.value) and str(refusal.value).startswith("trial.yaml")


def test_the_baseline_is_no_pre_training_where_there_is_one() -> None:
    assert sweep().baseline == "none"
    assert sweep(variants=TWO[:1]).baseline == "mlm"
    assert sweep(baseline="mlm").baseline == "mlm"


def test_a_grid_is_every_combination() -> None:
    made = make_sweep(
        "g",
        {"grid": {"pretraining.objective": ["mlm", "bow"], "pretraining.encoder_mlm_probability": [0.15, 0.3]}},
        "g",
    )
    assert {v.name: tuple(v.overrides.values()) for v in made.variants} == {
        "mlm-encoder_mlm_probability-0.15": ("mlm", 0.15),
        "mlm-encoder_mlm_probability-0.3": ("mlm", 0.3),
        "bow-encoder_mlm_probability-0.15": ("bow", 0.15),
        "bow-encoder_mlm_probability-0.3": ("bow", 0.3),
    }


CONDITIONS = [
    {"name": "early", "retriever": "retriever_1"},
    {"name": "small", "label": "1 %", "overrides": {"ingest.reqa_split": "1/99", "ingest.source": "{own}"}},
    {
        "name": "small-late",
        "retriever": "retriever_2",
        "overrides": {"ingest.reqa_split": "1/99", "ingest.source": "{own}"},
    },
]


def test_a_sweep_under_one_condition_has_no_conditions() -> None:
    figures = {"early": {"R@1": 41.86}, "small": {"R@1": 3, "R@5": 4}}
    made = sweep(
        title="T",
        retriever="distilled",
        overrides={"ingest.reqa_split": "5/95"},
        conditions=CONDITIONS,
        variants=[{"name": "a", "published": figures}],
    )
    plain = make_sweep(
        "trial-small",
        {
            "title": "T: 1 %",
            "retriever": "distilled",
            "overrides": {"ingest.reqa_split": "1/99", "ingest.source": "{own}"},
            "variants": [{"name": "a", "published": {"R@1": 3, "R@5": 4}}],
        },
        "plain",
    )
    assert made.under("small") == plain
    assert made.under("early").retriever == "retriever_1" and made.under("early").measures == ["R@1"]
    assert made.under("small-late").measures == []
    with pytest.raises(InputError, match="no condition 'smal'; did you mean 'small'"):
        made.under("smal")
    assert make_sweep("trial", made.plain(), "again") == made


def test_flags_make_a_sweep() -> None:
    made = sweep_of_flags("none,ict+bfs+wlp,bow", [], "objectives")
    assert [v.name for v in made.variants] == ["none", "ict+bfs+wlp", "bow"]
    assert [v.pretraining for v in made.variants] == [False, True, True]
    ratios = sweep_of_flags("bow", ["pretraining.encoder_mlm_probability=0.15,0.3", "retriever_1.batch_size=8"], "r")
    assert [v.overrides["pretraining.encoder_mlm_probability"] for v in ratios.variants] == [0.15, 0.3]
    assert {v.overrides["retriever_1.batch_size"] for v in ratios.variants} == {8}
    assert sweep_of_flags("bow", ["pretraining.encoder_mlm_probability=0.15,0.3"], "r").axis == (
        "pretraining.encoder_mlm_probability"
    )


FLAGS = {
    "an empty place": (lambda: sweep_of_flags("mlm,,bow", [], "o"), "empty value"),
    "no values": (lambda: sweep_of_flags("", ["pretraining.epochs"], "o"), "STAGE.SETTING=VALUE,VALUE"),
    "a setting twice": (lambda: sweep_of_flags("mlm", ["pretraining.objective=bow"], "o"), "twice"),
    "seeds of text": (lambda: seeds_of("1,two"), "whole numbers"),
    "a seed twice": (lambda: seeds_of("1,1"), "different"),
    "none varied": (lambda: sweep_of_flags("none,mlm", ["pretraining.epochs=1,2"], "o"), "no pre-training to vary"),
}


@pytest.mark.parametrize("case", FLAGS)
def test_bad_flags_are_refused(case: str) -> None:
    call, message = FLAGS[case]
    with pytest.raises(InputError, match=message):
        call()


FIGURES = yaml.safe_load(Path(__file__).with_name("papers_figures.yaml").read_text(encoding="utf-8"))
PAPERS: dict[str, dict[str, float]] = FIGURES["rows"]
"""The first published figure of each row, read off the papers' tables."""
COLUMNS: dict[str, dict[str, dict[str, dict[str, float]]]] = FIGURES["columns"]
"""Some columns of the papers' tables with conditions: sweep → condition → measure → the figure of each variant."""


@pytest.mark.parametrize("name", PAPERS)
def test_shipped_sweeps_carry_the_papers_figures(name: str) -> None:
    made = read_sweep(shipped_sweeps()[name])
    first = {v.name: next(iter(v.published.values())) for v in made.variants}
    assert {key: first[key] for key in PAPERS[name]} == PAPERS[name]
    assert made.source.lower().startswith(name.partition("-")[0]) and made.published_on


@pytest.mark.parametrize("name", COLUMNS)
def test_shipped_sweeps_with_conditions_carry_the_papers_columns(name: str) -> None:
    made = read_sweep(shipped_sweeps()[name])
    assert made.source.lower().startswith(name.partition("-")[0]) and made.published_on and made.recipe
    for condition, columns in COLUMNS[name].items():
        for measure, figures in columns.items():
            column = {variant.name: variant.published.get(measure) for variant in made.under(condition).variants}
            assert {variant: column[variant] for variant in figures} == figures
    assert {condition.name for condition in made.conditions} >= COLUMNS[name].keys()
