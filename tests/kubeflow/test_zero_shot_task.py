"""The task `zero-shot` with nodes: what a node measured, the task's own pod does not repeat."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stillhouse.kubeflow.pods import zero_shot
from stillhouse.kubeflow.pods.zero_shot import Config, main, run_zero_shot


def test_what_a_node_measured_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = tmp_path / "birds"
    (corpus / "qrels").mkdir(parents=True)
    passages = [{"_id": name, "text": f"the {name} sings"} for name in ("wren", "robin", "finch")]
    (corpus / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in passages))
    (corpus / "queries.jsonl").write_text('{"_id": "q", "text": "wren"}\n')
    (corpus / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\twren\t1\n")
    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path / "work"))
    monkeypatch.setenv("STILLHOUSE_QUIET", "0")
    monkeypatch.setattr(zero_shot, "read_node_settings", lambda *given: object())

    def node(config: Config, root: Path, nodes: Any) -> None:
        assert main([json.dumps(asdict(config)), str(corpus), str(root)]) == 0
        assert "skipped" not in "".join(capsys.readouterr())

    monkeypatch.setattr(zero_shot, "_by_nodes", node)
    figures: dict[str, float] = {}
    outputs = {name: SimpleNamespace(path=str(tmp_path / name)) for name in ("zero_shot", "html")}
    outputs["metrics"] = SimpleNamespace(path=str(tmp_path / "metrics"), log_metric=figures.__setitem__)
    run_zero_shot({"corpora": json.dumps([str(corpus)]), "retrievers": "[]", "measures": "RR@5", "depth": 5} | outputs)
    said = "".join(capsys.readouterr())
    assert said.count("skipped: its outputs are up to date") == 2, "the corpus, and BM25"
    assert figures == {"bm25/RR@5": 1.0} and "birds" in (tmp_path / "html").read_text()
    assert not list((tmp_path / "work").glob("zero-shot-*")), "what is done is removed"
