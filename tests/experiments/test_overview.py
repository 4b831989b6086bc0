"""All conditions of a sweep in one table: each cell has its own condition's figure, next to the paper's."""

from __future__ import annotations

import dataclasses

import pandas as pd

from stillhouse.evaluation.samples import Samples
from stillhouse.experiments.comparison.files import overview_markdown
from stillhouse.experiments.comparison.outcomes import Outcome
from stillhouse.experiments.comparison.sweep import make_sweep
from stillhouse.experiments.comparison.table import Table, make_table

SWEEP = make_sweep(
    "trial",
    {
        "title": "T | 1",
        "conditions": [{"name": "some", "label": "1 %"}, {"name": "most", "label": "80 %"}],
        "losses": {"MLM loss": "mlm_loss"},
        "variants": [
            {
                "name": "none",
                "pretraining": False,
                "published": {"some": {"MRR@10": 33.7, "GLUE": 80}, "most": {"R@1k": 1}},
            },
            {"name": "bow", "published": {"some": {"MRR@10": 38.4, "MLM loss": 2.5}}},
        ],
    },
    "trial",
)


def table(condition: str, values: dict[str, float], loss: float) -> Table:
    frames = {
        name: pd.DataFrame({"RR@10": value, "R@1000": value / 2}, index=pd.Index(["a", "b"], name="query_id"))
        for name, value in values.items()
    }
    found = [Outcome(variant=name, seed=42, test=frame, losses={"MLM loss": loss}) for name, frame in frames.items()]
    found += [Outcome(variant=of.name, seed=42, failure="no") for of in SWEEP.variants if of.name not in values]
    return make_table(SWEEP.under(condition), found, {}, Samples(50, 50, 1))


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in text.splitlines() if line[:1] == "|"]


def test_a_cell_is_ours_and_the_papers_under_its_condition() -> None:
    tables = {"some": table("some", {"none": 0.25, "bow": 0.5}, 3), "most": table("most", {"none": 0.75}, 4)}
    text = overview_markdown(SWEEP, tables)
    head, _, none, bow = cells(text)
    assert head == ["variant", "1 %: MRR@10", "1 %: MLM loss", "80 %: R@1k"]  # we do not measure GLUE
    assert none == ["none", "0.250 (33.7)", "3.000", "0.375 (1)"]
    assert bow == ["bow", "0.500 (38.4)", "3.000 (2.5)", "failed"]
    assert text.startswith("# T \\| 1\n") and "`bow` failed with seed 42: no" in text


def test_a_condition_without_figures_shows_its_first_measure_and_one_without_result_nothing() -> None:
    bare = dataclasses.replace(
        SWEEP, variants=tuple(dataclasses.replace(v, published_under={}) for v in SWEEP.variants)
    )
    made = table("most", {"none": 0.75, "bow": 0.5}, 4)
    made = dataclasses.replace(made, sweep=bare.under("most"))
    assert cells(overview_markdown(bare, {"most": made}))[0] == ["variant", "80 %: RR@10"]
