"""The benchmark of pre-training through every stage: its two runs differ in nothing else, and its table by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from stillhouse.workflow.graph import graph_of
from stillhouse.workflow.recipes import configs

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    import objectives_stages

    return objectives_stages


@pytest.mark.parametrize("name", ["squad-passages", "medquad"])
def test_both_runs_differ_in_the_pre_training_alone(stages: Any, name: str) -> None:
    recipes = [stages.recipe_of(name, arm, 7, Path("/start"), Path("/source")) for arm in ("without", "with")]
    without, within = ({use.name: use for use in graph_of(recipe)} for recipe in recipes)
    assert within.keys() - without.keys() == {"tokenize", "lm_head", "pretraining"}
    before, after = (configs(recipe, name) for recipe in recipes)
    for use in without:
        assert before[use] == after[use], use
    assert without["retriever_1"].inputs["encoder"] == "fetch_model/encoder"
    assert within["retriever_1"].inputs["encoder"] == "pretraining/encoder"
    changed = {use for use in without if without[use].inputs != within[use].inputs}
    assert changed == {"retriever_1", "evaluate"}, "curves of the pre-training are in the report"
    assert after["pretraining"].objective == "enhanced_decoding"
    assert {after[use].seed for use in ("pretraining", "retriever_1", "retriever_2", "distilled")} == {7}


def run(folder: Path, values: dict[str, list[float]]) -> None:
    evaluation = folder / "artifacts" / "evaluate" / "evaluation"
    best = folder / "artifacts" / "best" / "retriever"
    evaluation.mkdir(parents=True)
    best.mkdir(parents=True)
    rows = [
        {"split": split, "system": name, "query_id": f"q{number}", "RR@10": value if split == "test" else 0.0}
        for split in ("dev", "test")
        for name, some in values.items()
        for number, value in enumerate(some)
    ]
    pd.DataFrame(rows).to_parquet(evaluation / "per_query.parquet")
    (evaluation / "manifest.json").write_text(json.dumps({"facts": {"order": {"run": list(values)}}}))
    (best / "manifest.json").write_text(json.dumps({"facts": {"winner": "distilled + BM25"}}))


def test_the_table_by_hand(stages: Any, tmp_path: Path) -> None:
    """Two seeds: without, `distilled` has 0.25 and 0.25 on average; with, 0.75 in every query."""
    for seed, some in ((1, [0.0, 0.5]), (2, [0.5, 0.0])):
        run(tmp_path / f"stages/medquad-without-{seed}", {"bm25": [1.0, 0.5], "distilled": some})
        run(tmp_path / f"stages/medquad-with-{seed}", {"bm25": [1.0, 0.5], "distilled": [0.75, 0.75]})
    run(tmp_path / "stages/medquad-without-3", {"bm25": [1.0, 0.5]})
    assert stages.seeds_of(tmp_path, "medquad") == [1, 2] and stages.seeds_of(tmp_path, "squad-passages") == []
    lines = stages.table(tmp_path, "medquad", [1, 2])
    assert "| `bm25` | 0.750 | 0.750 |  |  |  |" in lines
    [row] = [line for line in lines if "`distilled` |" in line]
    assert row.startswith("| `distilled` | 0.250 | 0.750 | +0.500 | +0.500 to +0.500 |")
    assert "mean of 2 seeds" in lines[-1] and "2 test questions" in lines[-1]
