"""`stillhouse compare` on the command line: what it refuses and shows, and one whole comparison."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from stillhouse import cli
from stillhouse.core.errors import InputError
from stillhouse.experiments.comparison.plan import Plan
from stillhouse.experiments.comparison.sweeps import shipped_sweeps

pytestmark = pytest.mark.usefixtures("here")
COMMON = ["compare", "--recipe", "micro"]
BAD = {
    "nothing": ([], "give either --objectives"),
    "both": (["--objectives", "mlm", "--sweep", "simlm-table7"], "either --objectives"),
    "a sweep": (["--sweep", "simlm-table77"], "did you mean 'simlm-table7'"),
    "an objective": (["--objectives", "mlm,simml"], "did you mean 'simlm'"),
    "a system beside the conditions'": (["--sweep", "cdmae-table2", "--retriever", "best"], "leave --retriever out"),
    "an argument": (["--sweep", "cdmae-table5"], "needs --with general=VALUE"),
    "a word without value": (["--sweep", "cdmae-table5", "--with", "general"], "write NAME=VALUE"),
    "a condition": (["--sweep", "cdmae-table2", "--under", "bm52"], "did you mean 'bm25'"),
    "conditions of a sweep without": (["--sweep", "simlm-table8", "--under", "a"], "has no condition 'a'; valid: none"),
    "two conditions on Kubeflow": (
        ["--sweep", "cdmae-table2", "--kubeflow", "k.yaml"],
        "choose one with --under: bm25, mined, distilled",
    ),
    "small with a source": (["--objectives", "mlm", "--small", "--source", "sample"], "leave out --source"),
    "small elsewhere": (["--objectives", "mlm", "--small", "--kubeflow", "k.yaml"], "--small only works"),
    "a source beside the sweep's": (
        ["--sweep", "chang-table4", "--with", "wikipedia=w", "--with", "reqa_nq=r", "--source", "sample"],
        "sweep chang-table4 names its own corpora; leave --source out",
    ),
    "a recipe": (["--objectives", "mlm", "--recipe", "mikro"], "did you mean 'micro'"),
    "a flag": (["--objective", "mlm"], "did you mean '--objectives'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_before_anything_is_made(
    case: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words, message = BAD[case]
    assert cli.main([*COMMON, *words]) == InputError.exit_code
    assert message in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_the_recipe_is_the_named_one_or_that_of_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Plan] = []

    def stand_in(sweep: Any, planned: dict[str, Plan], *others: Any) -> list[Any]:
        ran.extend(planned.values())
        return []

    monkeypatch.setattr("stillhouse.cli.compare.run_here", stand_in)
    words = ["compare", "--sweep", "cdmae-table2", "--under", "bm25"]
    for own in ([], ["--recipe", "micro"], ["--small"]):
        assert cli.main([*words, *own]) == 0
    sources = [plan.reference.configs["ingest"].source for plan in ran]
    assert sources == ["data/msmarco", "sample", "sample"]
    assert [plan.jobs[0].configs["retriever_1"].negatives_per_query for plan in ran] == [31, 1, 2]


@pytest.mark.slow
@pytest.mark.long
def test_a_table_of_a_paper_runs_with_small(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row of CDMAE's Table 2, with the stages as conditions: both use the same training of retriever 1."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    content = yaml.safe_load(shipped_sweeps()["cdmae-table2"].read_text())
    content |= {"baseline": "cdmae", "variants": [row for row in content["variants"] if row["name"] == "cdmae"]}
    Path("one-row.yaml").write_text(yaml.safe_dump(content))
    words = ["compare", "--sweep", "one-row.yaml", "--small", "--folder", "out", "--quiet"]
    assert cli.main([*words, "--under", "bm25,mined"]) == 0
    assert len(list(Path("out").rglob("retriever_1/retriever"))) == 1
    for condition, system, published in (("bm25", "retriever_1", 38.8), ("mined", "retriever_2", 40.2)):
        content = json.loads(Path("out", condition, "comparison.json").read_text())
        evaluation = Path("out", condition, "cdmae/seed-42/artifacts/evaluate/evaluation/metrics.json")
        row = content["variants"]["cdmae"]
        assert row["published"]["MRR@10"] == published
        assert row["test"]["RR@10"]["mean"] == pytest.approx(
            json.loads(evaluation.read_text())[system]["RR@10"], rel=1e-5
        )


@pytest.mark.slow
@pytest.mark.long
def test_a_whole_comparison(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two objectives and one that cannot be trained give a table, a page and a reason. A second run does nothing."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    sweep: dict[str, Any] = {
        "title": "Trial",
        "variants": [
            {"name": "none", "pretraining": False, "published": {"MRR@10": 33.7}},
            {"name": "bow", "overrides": {"pretraining.objective": "bow"}, "published": {"MRR@10": 38.4}},
            {"name": "long", "overrides": {"pretraining.max_length": 4096}},
        ],
    }
    Path("trial.yaml").write_text(yaml.safe_dump(sweep))
    words = [*COMMON, "--sweep", "trial.yaml", "--seeds", "1", "--folder", "out", "--quiet"]
    assert cli.main(words) == InputError.exit_code
    content = json.loads(Path("out/comparison.json").read_text())
    assert content["variants"]["long"]["failures"] == {
        "1": "pretraining: the model reads at most 512 tokens; lower max_length from 4096"
    }
    bow, none = content["variants"]["bow"], content["variants"]["none"]
    metrics = json.loads(Path("out/bow/seed-1/artifacts/evaluate/evaluation/metrics.json").read_text())
    assert bow["test"]["RR@10"]["mean"] == pytest.approx(metrics["retriever_1"]["RR@10"], rel=1e-5)
    assert none["heldout_loss"] is None
    assert none["test"].keys() == {"RR@10", "nDCG@10", "R@50", "R@100"}
    [curve] = [Path("out/bow/seed-1/artifacts/pretraining/curves/curves.csv")]
    losses = [float(row["heldout_loss"]) for row in csv.DictReader(curve.open())]
    assert bow["heldout_loss"] == pytest.approx(min(losses), rel=1e-5)
    page = Path("out/comparison.html").read_text()
    assert "lower max_length from 4096" in page and 'data-signal="heldout_loss"' in page
    before = {path: path.stat().st_mtime_ns for path in Path("out/bow").rglob("manifest.json")}
    Path("trial.yaml").write_text(yaml.safe_dump(sweep | {"variants": sweep["variants"][:2]}))
    assert cli.main(words) == 0
    assert {path: path.stat().st_mtime_ns for path in Path("out/bow").rglob("manifest.json")} == before
