"""The commands of torchrun, Ray and Kubeflow's local runner, which start processes of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from documented_commands import section
from small_workspaces import write_words
from terminal import Terminal

from stillhouse import cli
from stillhouse.core.artifacts import read_manifest
from stillhouse.corpus.engine.ray_engine import open_engine
from stillhouse.corpus.store import Corpus
from stillhouse.pipeline.steps import ingest, tokenize

pytestmark = pytest.mark.long


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal in a workspace of the tests' recipe. It runs two processes, because four need too much memory."""
    made = Terminal(tmp_path, monkeypatch, {"--nproc-per-node 4": "--nproc-per-node 2", "ray:8": "ray:2"})
    assert cli.main(["new", "work", "--recipe", "micro"]) == 0
    monkeypatch.chdir("work")
    return made


def test_processes_share_a_batch(terminal: Terminal) -> None:
    for until in ("retriever_1", "pretraining"):
        assert cli.main(["run", "--until", until, "--quiet"]) == 0
    before = read_manifest(Path("artifacts/retriever_1/retriever")).digest
    path = Path("params.yaml")
    content = yaml.safe_load(path.read_text())
    content["pretraining"] |= {"max_steps": 3}
    content["retriever_1"] |= {"max_steps": 3}
    path.write_text(yaml.safe_dump(content))
    terminal.type_all(section("docs/pretrain.md", "Larger runs"))
    assert read_manifest(Path("artifacts/pretraining/encoder")).config["max_steps"] == 3
    terminal.type_all(section("docs/fine-tuning.md", "Several processes"))
    after = read_manifest(Path("artifacts/retriever_1/retriever"))
    assert after.config["max_steps"] == 3 and after.digest != before


def test_ray_shares_the_work_of_a_run(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def opened(name: str) -> Any:
        asked.append(name)
        return open_engine(name)

    for step in (ingest, tokenize):
        monkeypatch.setattr(step, "open_engine", opened)
    lines = [{"id": f"p{n}", "title": "", "text": f"the red bird number {n} sings"} for n in range(40)]
    Path("corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    terminal.type_all(section("docs/large-corpora.md", "Corpora beyond one machine"))
    assert Corpus.open(Path("corpus")).passage_count == 40
    assert asked == ["ray", "ray:2", "ray:2"], "ingest, then both steps, which DVC finds complete"


def test_pipelines_run_on_this_machine(terminal: Terminal) -> None:
    write_words(Path("beir/scifact"), ("bird", "fish", "tree"))
    terminal.type_all(section("docs/kubeflow.md", "On this machine"))
    assert Path("evaluation/report.html").is_file(), "in try-kubeflow, which the second command enters"
    assert json.loads(Path("try-zero-shot/zero_shot/metrics.json").read_text())["corpora"]
