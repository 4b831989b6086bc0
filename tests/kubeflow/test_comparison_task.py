"""The task `comparison`: a try whose runs all failed leaves nothing that would make the next one fail."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from stillhouse.experiments.comparison.plan import Job
from stillhouse.experiments.comparison.run import Failure, Runner
from stillhouse.kubeflow.pods.compare import run_variants, write_comparison_plan
from stillhouse.kubeflow.pods.stage import RECIPE, write_recipe


def test_runs_that_all_failed_are_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[str] = []

    def fails(self: Runner, job: Job) -> Failure:
        tried.append(job.name)
        return Failure("retriever_1", "the GPU is lost", bad_input=False)

    monkeypatch.setattr(Runner, "run_job", fails)
    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path / "work"))
    variants = [{"name": name, "overrides": {"retriever_1.epochs": n}} for n, name in enumerate(("one", "two"), 1)]
    write_recipe({}, tmp_path / "recipe")
    write_comparison_plan(json.dumps({"name": "trial", "variants": variants, "seeds": [1]}), {}, tmp_path / "recipe")
    for _ in range(2):
        with pytest.raises(SystemExit):
            run_variants({RECIPE: SimpleNamespace(path=str(tmp_path / "recipe"))})
        assert "no run of the comparison succeeded: the GPU is lost" in capsys.readouterr().err
    assert len(tried) == 4
