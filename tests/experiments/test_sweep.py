"""Sweeps as data: what a file may contain, what flags change, and that every shipped sweep is well formed."""

from __future__ import annotations

from typing import Any

import pytest

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


PAPERS = {
    "simlm-table5": {"start": 42.3, "simlm": 42.9},
    "simlm-table7": {
        "simlm": 38.0,
        "enc_dec_mlm": 37.7,
        "condenser": 36.9,
        "mlm": 36.7,
        "autoencoder": 32.8,
        "none": 33.7,
    },
    "simlm-table8": {"15-15": 37.6, "15-30": 37.5, "30-30": 37.9, "30-50": 38.0, "40-60": 38.0, "30-100": 36.6},
    "simlm-table10": {"none": 33.7, "target": 38.0, "other": 36.3},
    "simlm-table12": {"frozen": 38.0, "joint": 38.0, "joint-random": 37.8},
    "simlm-table1": {"bert": 33.7, "roberta": 33.1, "electra": 31.9},
    "bow-table1": {"none": 36.05, "mlm": 37.33, "auto_regression": 37.06, "enhanced_decoding": 38.12},
    "bow-table3": {"bm25": 18.7, "condenser": 36.6, "simlm": 39.1, "retromae": 39.3, "bow": 40.1},
    "bow-table6": {"none": 37.93, "bow-15": 44.33, "bow-30": 43.74, "bow-45": 43.75, "mlm": 42.43},
    "cdmae-table4": {"without": 38.4, "with": 38.8},
    "cdmae-table5": {"target": 37.9, "general-target": 38.8},
}
"""The first published figure of each row, read off the papers' tables."""

COLUMNS: dict[str, dict[tuple[str, str], dict[str, float]]] = {
    "bow-table2": {
        ("nq", "R@100"): {"none": 88.78, "mlm": 89.67, "auto_encoding": 90.00, "enhanced_decoding": 90.30},
        ("triviaqa", "R@20"): {"none": 82.21, "auto_regression": 84.63},
        ("nq", "MLM loss"): {"none": 2.9498, "mlm": 1.7682},
    },
    "bow-table3-qa": {
        ("nq", "R@20"): {"bm25": 59.1, "condenser": 83.2, "simlm": 84.3, "retromae": 84.4, "bow": 84.6},
        ("triviaqa", "R@5"): {"condenser": 74.3, "simlm": 78.1, "retromae": 78.9, "bow": 79.4},
    },
    "bow-table5": {
        ("bm25", "MRR@10"): {"none": 33.7, "mlm": 37.2, "enhanced_decoding": 37.0, "bow": 38.4},
        ("mined", "MRR@10"): {"none": 36.1, "mlm": 39.2, "auto_encoding": 39.3, "bow": 40.1},
        ("mined", "R@1k"): {"none": 96.9, "auto_regression": 98.9, "enhanced_decoding": 98.6, "bow": 98.9},
    },
    "bow-table5-qa": {
        ("nq-bm25", "R@5"): {"none": 68.2, "mlm": 71.4, "bow": 72.3},
        ("nq-mined", "R@100"): {"none": 88.8, "auto_regression": 90.1, "bow": 90.4},
        ("triviaqa-bm25", "R@20"): {"none": 80.2, "auto_encoding": 83.2, "bow": 83.9},
        ("triviaqa-mined", "R@100"): {"none": 86.8, "enhanced_decoding": 88.1, "bow": 88.0},
    },
    "cdmae-table2": {
        ("bm25", "MRR@10"): {"retromae": 37.7, "simlm": 38.0, "cdmae": 38.8},
        ("mined", "MRR@10"): {"retromae": 39.3, "simlm": 39.1, "cdmae": 40.2},
        ("distilled", "R@1k"): {"retromae": 98.8, "simlm": 98.7, "cdmae": 98.9},
    },
    "chang-table3": {
        ("1-99", "R@1"): {"bm25": 41.86, "bow_mlp-none": 0.14, "bow_mlp": 22.55, "none": 0.02, "mlm": 0.18},
        ("5-95", "R@50"): {"bm25": 74.17, "bow_mlp": 75.28, "ict+bfs+wlp": 90.49},
        ("80-20", "R@100"): {"bm25": 77.49, "none": 61.53, "mlm": 80.33, "ict+bfs+wlp": 97.49},
    },
    "chang-table4": {
        ("1-99", "R@100"): {"bm25": 27.97, "bow_mlp-none": 2.66, "bow_mlp": 61.30, "ict+bfs+wlp": 82.84},
        ("5-95", "R@10"): {"bm25": 15.47, "none": 1.40, "mlm": 4.89},
        ("80-20", "R@1"): {"bm25": 4.93, "bow_mlp-none": 9.78, "none": 7.49, "ict+bfs+wlp": 30.27},
    },
    "chang-table5": {
        ("1-99", "R@100"): {"ict-4": 77.13, "none": 0.72, "ict+bfs+wlp-512": 82.84},
        ("5-95", "R@100"): {"bfs-4": 78.34, "mlm": 12.21, "ict+bfs+wlp": 87.08},
        ("10-90", "R@100"): {"wlp-4": 72.51, "none": 6.94, "ict+bfs+wlp-256": 89.54},
        ("80-20", "R@100"): {"ict-4": 91.88, "none": 38.94, "mlm": 71.12, "ict+bfs+wlp": 94.37},
    },
}
"""Some columns of the papers' tables with conditions."""


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
    for (condition, measure), figures in COLUMNS[name].items():
        column = {variant.name: variant.published.get(measure) for variant in made.under(condition).variants}
        assert {variant: column[variant] for variant in figures} == figures
    assert {condition.name for condition in made.conditions} >= {condition for condition, _ in COLUMNS[name]}
