"""The table's statistics, compared with slow, obvious versions and SciPy's."""

from __future__ import annotations

import itertools
import json
import statistics
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from stillhouse.core.errors import InputError
from stillhouse.evaluation.samples import Samples
from stillhouse.experiments.comparison.files import as_json
from stillhouse.experiments.comparison.outcomes import Outcome
from stillhouse.experiments.comparison.page import render
from stillhouse.experiments.comparison.sweep import Sweep, make_sweep
from stillhouse.experiments.comparison.table import Table, make_table

QUERIES = [f"q{i}" for i in range(9)]
MEASURES = ["RR@10", "R@100"]
SWEEP = make_sweep(
    "trial",
    {
        "title": "A trial",
        "source": "SimLM Table 0",
        "seeds": [1, 2, 3],
        "variants": [
            {"name": "none", "pretraining": False, "published": {"MRR@10": 33.7}},
            {"name": "mlm", "overrides": {"pretraining.objective": "mlm"}, "published": {"MRR@10": 36.7}},
            {"name": "bow", "overrides": {"pretraining.objective": "bow"}, "published": {"MRR@10": 38.4}},
        ],
    },
    "trial",
)


def frame(values: np.ndarray, queries: list[str] = QUERIES) -> pd.DataFrame:
    return pd.DataFrame(values, index=pd.Index(queries, name="query_id"), columns=MEASURES)


def outcomes(sweep: Sweep = SWEEP) -> list[Outcome]:
    rng = np.random.default_rng(5)
    made = []
    for number, variant in enumerate(sweep.variants):
        for seed in sweep.seeds:
            made.append(
                Outcome(
                    variant=variant.name,
                    seed=seed,
                    test=frame(np.round(rng.random((9, 2)) + 0.4 * number, 3)),
                    dev=frame(rng.random((9, 2))),
                )
            )
    return made


def table(found: list[Outcome]) -> Table:
    return make_table(SWEEP, found, {"bm25": frame(np.full((9, 2), 0.5))}, Samples(4000, 20000, 3))


def test_means_and_spread_over_seeds() -> None:
    found = outcomes()
    made = table(found)
    for variant in ("none", "mlm", "bow"):
        for measure in MEASURES:
            means = [statistics.fmean(o.test[measure]) for o in found if o.variant == variant]
            figure = made.row(variant).figures[measure]
            assert figure.mean == pytest.approx(statistics.fmean(means), rel=1e-5)
            assert figure.deviation == pytest.approx(statistics.stdev(means), rel=1e-5)
            assert (figure.lowest, figure.highest) == pytest.approx((min(means), max(means)), rel=1e-5)
            assert figure.low < figure.mean < figure.high
    assert made.references == {"bm25": {"RR@10": 0.5, "R@100": 0.5}}


def test_tests_are_paired_over_queries_of_seed_averaged_values() -> None:
    found = outcomes()
    made = table(found)
    found_p = {}
    for variant in ("mlm", "bow"):
        average = {
            name: np.array([statistics.fmean(o.test["RR@10"][q] for o in found if o.variant == name) for q in QUERIES])
            for name in (variant, "none")
        }
        differences = average[variant] - average["none"]
        flips = [abs(np.dot(signs, differences)) for signs in itertools.product([1, -1], repeat=9)]
        exact = np.mean([flip >= abs(differences.sum()) - 1e-9 for flip in flips])
        against = made.row(variant).figures["RR@10"].against
        assert against is not None
        assert against.difference == pytest.approx(differences.mean(), rel=1e-5)
        assert against.randomisation_p == pytest.approx(exact, abs=0.012)
        found_p[variant] = against.randomisation_p
        resampled = np.random.default_rng(0).choice(differences, (20000, 9)).mean(axis=1)
        assert (against.low, against.high) == pytest.approx(tuple(np.quantile(resampled, [0.025, 0.975])), abs=0.03)
    small, large = sorted(found_p, key=lambda name: found_p[name])
    holm = {small: min(1, 2 * found_p[small]), large: min(1, max(2 * found_p[small], found_p[large]))}
    for variant, expected in holm.items():
        assert made.row(variant).figures["RR@10"].against.randomisation_p_holm == pytest.approx(expected, rel=1e-4)  # type: ignore[union-attr]
    assert made.row("none").figures["RR@10"].against is None


def test_the_best_is_chosen_on_dev_and_on_test_without_dev() -> None:
    found = outcomes()
    dev = {v.name: np.mean([o.dev["RR@10"].mean() for o in found if o.variant == v.name]) for v in SWEEP.variants}
    assert table(found).best.variant.name == max(dev, key=lambda name: dev[name])
    without = [Outcome(variant=o.variant, seed=o.seed, test=o.test) for o in found]
    assert table(without).best.variant.name == "bow"


def test_failed_runs_are_reported_and_the_others_count() -> None:
    found = outcomes()
    failed = [o for o in found if (o.variant, o.seed) != ("mlm", 2)]
    failed.append(Outcome(variant="mlm", seed=2, failure="pretraining: the loss is nan"))
    row = table(failed).row("mlm")
    assert row.seeds == (1, 3) and row.failures == {2: "pretraining: the loss is nan"}
    everything = [Outcome(variant="bow", seed=s, failure="why") for s in (1, 2, 3)] + [
        o for o in found if o.variant != "bow"
    ]
    made = table(everything)
    assert made.row("bow").figures == {} and [row.variant.name for row in made.done] == ["none", "mlm"]
    variants = as_json(made)["variants"]
    assert variants["mlm"]["failures"] == {} and variants["bow"]["failures"] == {"1": "why", "2": "why", "3": "why"}
    with pytest.raises(InputError, match="finished"):
        table([Outcome(variant="bow", seed=1, failure="why")])


def test_other_queries_are_refused() -> None:
    found = outcomes()
    other = frame(np.zeros((9, 2)), [f"r{i}" for i in range(9)])
    changed = [o if o.variant != "bow" else Outcome(variant="bow", seed=o.seed, test=other) for o in found]
    with pytest.raises(InputError, match="variant bow was measured on other queries than none"):
        table(changed)
    changed = [Outcome(variant="bow", seed=2, test=other) if (o.variant, o.seed) == ("bow", 2) else o for o in found]
    with pytest.raises(InputError, match="with seed 2 than with seed 1"):
        table(changed)


def test_the_file_has_the_figures_of_the_table() -> None:
    made = table(outcomes())
    content = as_json(made)
    assert json.loads(json.dumps(content)) == content and content["seeds"] == [1, 2, 3]
    figure, row = content["variants"]["mlm"]["test"]["RR@10"], made.row("mlm").figures["RR@10"]
    assert (figure["mean"], figure["deviation"]) == (row.mean, row.deviation)
    assert figure["against_baseline"] == vars(row.against) and content["references"] == {
        "bm25": made.references["bm25"]
    }
    assert content["variants"]["mlm"]["published"] == {"MRR@10": 36.7}


def test_a_measure_that_a_split_lacks_is_left_out_of_it() -> None:
    """Only test has answers, so dev has no Answer@20 and chooses by nothing; without any value it is no measure."""
    found = outcomes()
    lacking = [replace(o, dev=o.dev.assign(**{"RR@10": np.nan})) for o in found]
    made = table(lacking)
    assert made.row("mlm").dev.keys() == {"R@100"} and made.row("mlm").figures.keys() == set(MEASURES)
    assert made.best.variant.name == "bow", "the best on test"
    assert "NaN" not in json.dumps(as_json(made))
    page = render(made, lacking)
    assert "No dev queries are judged for RR@10" in page and "nan" not in page.split("</style>")[1]
    made = table([replace(o, test=o.test.assign(**{"R@100": np.nan})) for o in found])
    assert made.measures == ("RR@10",) and "NaN" not in json.dumps(as_json(made))
