"""A sweep whose variants have graphs of their own, compared here and with Kubeflow's local runner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from stillhouse import cli
from stillhouse.kubeflow.pipelines.catalog import RESULTS, Request
from stillhouse.kubeflow.pipelines.local import find_result, run_pipeline

MEASURED: dict[str, Any] = {
    "objective": "mlm",
    "trainable": "missing_head",
    "max_steps": 6,
    "batch_size": 32,
    "learning_rate": 3e-3,
    "heldout_fraction": 0.2,
    "eval_steps": 100,
}
SWEEP: dict[str, Any] = {
    "seeds": [1],
    "stages": {"mlm_loss": {"step": "pretrain", "tokens": "tokenize/tokens", "init": "pretraining/encoder"}},
    "overrides": {f"mlm_loss.{name}": value for name, value in MEASURED.items()},
    "losses": {"MLM loss": "mlm_loss", "loss of the head": "lm_head"},
    "variants": [
        {"name": "words", "retriever": "bm25"},
        {"name": "none", "pretraining": False},
        {"name": "mined", "retriever": "retriever_2"},
        {"name": "unmined", "retriever": "retriever_2", "inputs": {"retriever_2.negatives": "bm25/negatives"}},
        {"name": "another", "overrides": {"lm_head.epochs": 2, "lm_head.max_steps": 9}},
    ],
}
"""The head is shared by all variants but `another`, and `words` has no loss."""


@pytest.mark.slow
@pytest.mark.long
def test_variants_with_other_graphs_give_the_same_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path / "work"))
    sweep = tmp_path / "trial.yaml"
    sweep.write_text(yaml.safe_dump(SWEEP, sort_keys=False))
    assert cli.main(["compare", "--sweep", str(sweep), "--recipe", "micro", "--folder", str(tmp_path / "here")]) == 0
    here = json.loads((tmp_path / "here" / "comparison.json").read_text())

    run_pipeline(Request("compare-objectives", "micro", str(sweep)).build(None), {}, tmp_path / "run")
    found = find_result(tmp_path / "run" / "outputs", RESULTS["compare-objectives"])
    assert found and (found / "comparison.html").stat().st_size > 0
    [end] = tmp_path.glob("run/outputs/*/report-end/summary")
    assert "compare-objectives: succeeded" in end.read_text()
    there = json.loads((found / "comparison.json").read_text())
    assert there["variants"].keys() == here["variants"].keys() == {variant["name"] for variant in SWEEP["variants"]}
    assert there == here
    losses = {name: variant["losses"] for name, variant in there["variants"].items()}
    heads = {name: of["loss of the head"] for name, of in losses.items() if of}
    assert losses["words"] == {} and heads["none"] == heads["mined"] == heads["unmined"] != heads["another"]
