"""Runs are read completely, and their page is self-contained, escaped, deterministic and plotted correctly."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from shown_page import Page

from stillhouse.evaluation.samples import Samples
from stillhouse.experiments.comparison.outcomes import Outcome, read_outcome
from stillhouse.experiments.comparison.page import render
from stillhouse.experiments.comparison.signals import coverage_curves, signal_curves
from stillhouse.experiments.comparison.sweep import make_sweep
from stillhouse.experiments.comparison.table import make_table

SWEEP = make_sweep(
    "trial",
    {
        "title": "Masks & <b>more</b>",
        "source": "SimLM Table 8",
        "published_on": "MS MARCO",
        "axis": "pretraining.encoder_mlm_probability",
        "seeds": [1, 2],
        "variants": [
            {
                "name": "none",
                "label": "no <script>alert(1)</script>",
                "pretraining": False,
                "published": {"MRR@10": 33.7},
            },
            *(
                {
                    "name": f"m{mask}",
                    "overrides": {"pretraining.objective": "mlm", "pretraining.encoder_mlm_probability": mask / 100},
                    "published": {"MRR@10": 30 + mask / 10},
                }
                for mask in (15, 30, 45)
            ),
        ],
    },
    "trial",
)


def written(folder: Path, value: float, system: str = "retriever_1", origins: tuple[str, ...] = ("source",)) -> Path:
    """Write an evaluation folder with six queries per split and origin, all with the same value in a split."""
    rows = [
        {"split": split, "system": system, "query_id": f"{split}{origin}{i}", "origin": origin, "RR@10": value + shift}
        for split, shift in (("dev", 0.1), ("test", 0.0))
        for origin in origins
        for i in range(6)
    ]
    folder.mkdir(parents=True)
    pd.DataFrame(rows).to_parquet(folder / "per_query.parquet")
    return folder


def curves(folder: Path, shift: float) -> Path:
    folder.mkdir(parents=True)
    (folder / "curves.csv").write_text(f"step,train_loss,heldout_loss\n0,3,{3 + shift}\n10,2,{2 + shift}\n20,2,2.5\n")
    (folder / "signals.csv").write_text(f"step,signal,value\n0,ict_RR@10,0.1\n20,ict_RR@10,{0.3 + shift}\n")
    (folder / "coverage.csv").write_text(f"k,coverage\n1,0.1\n20,{0.2 + shift}\n")
    ranked = {"blue": True, "trees": False, "sing": False, "##ngs": True}  # the tokenizer splits sings into si ##ngs
    tokens = [
        {"token": token, "rank": rank, "in_passage": hit} for rank, (token, hit) in enumerate(ranked.items(), start=1)
    ][::-1]
    examples = [{"passage": "A blue <i>bird</i> sings", "tokens": tokens}]
    (folder / "coverage_examples.json").write_text(json.dumps(examples))
    return folder


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[Outcome]:
    root = tmp_path_factory.mktemp("outcomes")
    made = []
    for number, variant in enumerate(SWEEP.variants):
        for seed in (1, 2):
            place = root / variant.name / str(seed)
            own = curves(place / "curves", 0.1 * seed) if variant.pretraining else None
            evaluation = written(place / "evaluation", 0.1 * number + 0.01 * seed)
            made.append(read_outcome(variant.name, seed, evaluation, own))
    return made


@pytest.fixture(scope="module")
def page(found: list[Outcome]) -> str:
    references = {"bm25": found[0].test, "zero_shot": found[0].test}
    return render(make_table(SWEEP, found, references, Samples(200, 200)), found)


def test_a_run_is_read_whole(found: list[Outcome]) -> None:
    last = found[-1]
    assert list(last.test.columns) == ["RR@10"] and last.test["RR@10"].tolist() == pytest.approx([0.32] * 6)
    assert last.dev["RR@10"].mean() == pytest.approx(0.42)
    assert last.steps == 20
    by_signal = last.signals.set_index(["signal", "step"])["value"]
    assert by_signal["heldout_loss", 10] == 2.2 and by_signal["ict_RR@10", 20] == 0.5
    assert found[0].signals.empty and found[0].coverage.empty and found[0].examples == ()


def test_labelled_queries_come_before_synthetic_ones(tmp_path: Path) -> None:
    both = read_outcome("a", 1, written(tmp_path / "both", 0.5, origins=("ict", "source")), None)
    assert all("source" in query for query in both.test.index) and len(both.test) == 6
    made = read_outcome("a", 1, written(tmp_path / "made", 0.5, origins=("ict", "bfs")), None)
    assert len(made.test) == 12


def test_curves_are_means_and_ranges_over_seeds(found: list[Outcome]) -> None:
    signals = signal_curves(SWEEP, found)
    assert list(signals) == ["heldout_loss", "ict_RR@10"]
    assert [curve.variant for curve in signals["heldout_loss"]] == ["m15", "m30", "m45"]
    curve = signals["heldout_loss"][0]
    assert curve.steps.tolist() == [0, 10, 20]
    np.testing.assert_allclose(
        [curve.mean, curve.low, curve.high], [[3.15, 2.15, 2.5], [3.1, 2.1, 2.5], [3.2, 2.2, 2.5]]
    )
    assert coverage_curves(SWEEP, found)[0].mean.tolist() == pytest.approx([0.1, 0.35])


def test_the_page_shows_everything_and_stands_alone(page: str) -> None:
    parsed = Page(page)
    assert [a["data-variant"] for _, a in parsed.tags if "data-variant" in a] == [v.name for v in SWEEP.variants]
    assert [a["data-signal"] for _, a in parsed.tags if "data-signal" in a] == ["heldout_loss", "ict_RR@10"]
    assert [a["data-reference"] for _, a in parsed.tags if "data-reference" in a] == ["BM25", "zero-shot"]
    assert sum(tag == "svg" for tag, _ in parsed.tags) == 4  # axis, two signals, coverage
    assert "0.315" in parsed.shown and "± 0.007" in parsed.shown and "34.5" in parsed.shown
    links = [v for _, a in parsed.tags for k, v in a.items() if k in ("src", "href", "xlink:href")]
    assert all(str(link).startswith("#") for link in links)
    assert not re.search(r"url\((?!#)|@import", page)


def test_the_page_escapes_labels_and_passages(page: str) -> None:
    parsed = Page(page)
    assert "script" not in {tag for tag, _ in parsed.tags} and "i" not in {tag for tag, a in parsed.tags if not a}
    assert "no <script>alert(1)</script>" in parsed.shown and "A blue <i>bird</i> sings" in parsed.shown


def test_failures_and_synthetic_figures_are_named(found: list[Outcome]) -> None:
    failed = [*found[:-1], Outcome(variant="m45", seed=2, failure="pretraining: the <loss> is nan")]
    table = make_table(SWEEP, failed, {}, Samples(200, 200), synthetic=True)
    shown = Page(render(table, failed)).shown
    assert "seed 2 failed: pretraining: the <loss> is nan" in shown and "6 SYNTHETIC test queries" in shown
