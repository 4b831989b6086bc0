"""The task `zero-shot`: what was measured before its pod was killed is not measured again."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from beir_source import write_beir

from stillhouse.kubeflow.pods import zero_shot
from stillhouse.kubeflow.pods.zero_shot import run_zero_shot, write_results


def test_what_an_earlier_try_measured_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    passages = [{"_id": name, "text": f"the {name} sings"} for name in ("wren", "robin", "finch")]
    corpus = write_beir(tmp_path / "birds", passages, {"q": "wren"}, test=[("q", "wren")])
    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path / "work"))
    monkeypatch.setenv("STILLHOUSE_QUIET", "0")
    figures: dict[str, float] = {}
    outputs = {name: SimpleNamespace(path=str(tmp_path / name)) for name in ("zero_shot", "html")}
    outputs["metrics"] = SimpleNamespace(path=str(tmp_path / "metrics"), log_metric=figures.__setitem__)
    given = {"corpora": json.dumps([str(corpus)]), "retrievers": "[]", "measures": "RR@5", "depth": 5} | outputs
    monkeypatch.setattr(zero_shot, "write_results", _killed)
    with pytest.raises(SystemExit):
        run_zero_shot(given)
    assert "skipped" not in "".join(capsys.readouterr())
    monkeypatch.setattr(zero_shot, "write_results", write_results)
    run_zero_shot(given)
    said = "".join(capsys.readouterr())
    assert said.count("skipped: its outputs are up to date") == 2, "the corpus, and BM25"
    assert figures == {"bm25/RR@5": 1.0} and "birds" in (tmp_path / "html").read_text()
    run_zero_shot(given)
    assert "".join(capsys.readouterr()).count("skipped") == 2, "Kubeflow may not have collected what it wrote"
    run_zero_shot(given | {"depth": 4, "measures": "RR@4"})
    assert len(list((tmp_path / "work").glob("zero-shot-*"))) == 1, "the next task removes what is done"


def _killed(*given: Any) -> None:
    raise SystemExit(143)
