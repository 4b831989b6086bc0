"""Sweeps as data: what a file may say, what flags make of it, and that every shipped one is well formed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stillhouse.comparison.sweep import filled, make_sweep, read_sweep
from stillhouse.errors import InputError
from stillhouse.surfaces.sweeps import only, seeds_of, shipped_sweeps, sweep_of_flags, with_baseline

TWO = [{"name": "mlm", "overrides": {"pretraining.objective": "mlm"}}, {"name": "none", "pretraining": False}]


def sweep(**content: Any) -> Any:
    return make_sweep("trial", {"variants": TWO} | content, "trial.yaml")


BAD = {
    "unknown key": ({"varaints": []}, "unknown key 'varaints'; did you mean 'variants'"),
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
    "no setting": ({"variants": [{"name": "a", "overrides": {"objective": "mlm"}}]}, "write use.field"),
    "a list for a value": ({"overrides": {"pretraining.objective": ["mlm"]}}, "one plain value"),
    "a seed as a setting": ({"overrides": {"pretraining.seed": 3}}, "list the seeds under `seeds`"),
    "a seed twice": ({"seeds": [1, 1]}, "a seed stands twice"),
    "a negative seed": ({"seeds": [-1]}, "whole numbers"),
    "an unknown baseline": ({"baseline": "nome"}, "did you mean 'none'?"),
    "published text": ({"variants": [{"name": "a", "published": {"RR@10": "38.0"}}]}, "measures to numbers"),
    "pre-training of none": (
        {"variants": [{"name": "a", "pretraining": False, "overrides": {"pretraining.epochs": 1}}]},
        "cannot change a setting of pretraining",
    ),
    "inputs as a list": ({"variants": [{"name": "a", "inputs": ["pretraining/encoder"]}]}, "use.input to use/output"),
    "an empty grid": ({"variants": None, "grid": {}}, "either `variants`"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_sweeps_are_refused_with_their_place(case: str) -> None:
    content, message = BAD[case]
    with pytest.raises(InputError) as refusal:
        sweep(**content)
    assert message in str(refusal.value) and str(refusal.value).startswith("trial.yaml")


def test_a_file_that_is_no_sweep(tmp_path: Path) -> None:
    for text in ("[1, 2]", "a: b: c", "variants: 3"):
        (tmp_path / "x.yaml").write_text(text)
        with pytest.raises(InputError, match=r"x\.yaml"):
            read_sweep(tmp_path / "x.yaml")
    with pytest.raises(InputError, match="compare --list"):
        read_sweep(tmp_path / "missing.yaml")


def test_the_baseline_is_no_pre_training_where_there_is_one() -> None:
    assert sweep().baseline == "none"
    assert sweep(variants=TWO[:1]).baseline == "mlm"
    assert sweep(baseline="mlm").base.overrides == {"pretraining.objective": "mlm"}


def test_a_grid_is_every_combination() -> None:
    made = make_sweep(
        "g", {"grid": {"pretraining.objective": ["mlm", "bow"], "pretraining.encoder_mask": [0.15, 0.3]}}, "g"
    )
    assert {v.name: tuple(v.overrides.values()) for v in made.variants} == {
        "mlm-encoder_mask-0.15": ("mlm", 0.15),
        "mlm-encoder_mask-0.3": ("mlm", 0.3),
        "bow-encoder_mask-0.15": ("bow", 0.15),
        "bow-encoder_mask-0.3": ("bow", 0.3),
    }


def test_plain_data_makes_the_same_sweep_again() -> None:
    for path in shipped_sweeps().values():
        read = read_sweep(path)
        assert make_sweep(read.name, read.plain(), "again") == read


def test_arguments_stand_in_for_words() -> None:
    made = sweep(arguments={"general": "an encoder folder"}, overrides={"fetch_model.model": "{general}"})
    assert filled(made, {"general": "x/y"}).overrides == {"fetch_model.model": "x/y"}
    with pytest.raises(InputError, match="needs --with general=VALUE: an encoder folder"):
        filled(made, {})
    with pytest.raises(InputError, match="no argument 'genral'; did you mean 'general'"):
        filled(made, {"genral": "x"})


def test_flags_make_a_sweep() -> None:
    made = sweep_of_flags("none,ict+bfs+wlp,bow", [], "objectives")
    assert [v.name for v in made.variants] == ["none", "ict+bfs+wlp", "bow"]
    assert [v.pretraining for v in made.variants] == [False, True, True]
    ratios = sweep_of_flags("bow", ["pretraining.encoder_mask=0.15,0.3", "retriever_1.batch_size=8"], "r")
    assert [v.overrides["pretraining.encoder_mask"] for v in ratios.variants] == [0.15, 0.3]
    assert {v.overrides["retriever_1.batch_size"] for v in ratios.variants} == {8}
    assert sweep_of_flags("bow", ["pretraining.encoder_mask=0.15,0.3"], "r").axis == "pretraining.encoder_mask"


FLAGS = {
    "an empty place": (lambda: sweep_of_flags("mlm,,bow", [], "o"), "empty place"),
    "no values": (lambda: sweep_of_flags("", ["pretraining.epochs"], "o"), "use.field=value,value"),
    "a setting twice": (lambda: sweep_of_flags("mlm", ["pretraining.objective=bow"], "o"), "twice"),
    "seeds of text": (lambda: seeds_of("1,two"), "whole numbers"),
    "a seed twice": (lambda: seeds_of("1,1"), "different"),
    "none varied": (lambda: sweep_of_flags("none,mlm", ["pretraining.epochs=1,2"], "o"), "no pre-training to vary"),
    "an unknown variant": (lambda: only(sweep(), ["mml"]), "did you mean 'mlm'"),
    "an unknown baseline": (lambda: with_baseline(sweep(), "non"), "did you mean 'none'"),
}


@pytest.mark.parametrize("case", FLAGS)
def test_bad_flags_are_refused(case: str) -> None:
    call, message = FLAGS[case]
    with pytest.raises(InputError, match=message):
        call()


def test_a_choice_of_variants_keeps_the_order_and_finds_a_baseline() -> None:
    assert [v.name for v in only(sweep(), ["none", "mlm"]).variants] == ["mlm", "none"]
    assert only(sweep(), ["mlm"]).baseline == "mlm"


PAPERS = {
    "001-table5": {"start": 42.3, "simlm": 42.9},
    "001-table7": {
        "simlm": 38.0,
        "enc_dec_mlm": 37.7,
        "condenser": 36.9,
        "mlm": 36.7,
        "autoencoder": 32.8,
        "none": 33.7,
    },
    "001-table8": {"15-15": 37.6, "15-30": 37.5, "30-30": 37.9, "30-50": 38.0, "40-60": 38.0, "30-100": 36.6},
    "001-table10": {"none": 33.7, "target": 38.0, "other": 36.3},
    "001-table12": {"frozen": 38.0, "joint": 38.0, "joint-random": 37.8},
    "002-table5": {"none": 33.7, "mlm": 37.2, "auto_encoding": 37.6, "enhanced_decoding": 37.0, "bow": 38.4},
    "002-table6": {"none": 37.93, "bow-15": 44.33, "bow-30": 43.74, "bow-45": 43.75, "mlm": 42.43},
    "003-table4": {"without": 38.4, "with": 38.8},
    "003-table5": {"target": 37.9, "general-target": 38.8},
    "004-table5": {"ict-4": 91.88, "none": 38.94, "mlm": 71.12, "ict+bfs+wlp": 94.37},
}
"""The first published figure of each row, read off the papers' tables."""


@pytest.mark.parametrize("name", PAPERS)
def test_shipped_sweeps_carry_the_papers_figures(name: str) -> None:
    made = read_sweep(shipped_sweeps()[name])
    first = {v.name: next(iter(v.published.values())) for v in made.variants}
    assert {key: first[key] for key in PAPERS[name]} == PAPERS[name]
    assert made.source.startswith(name[:3]) and made.published_on
