"""The folder that `release card` writes: what the Hub and sentence-transformers read in it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer

from stillhouse import cli
from stillhouse.core.artifacts import digest_file, read_manifest, whole_folder, write_json, write_manifest
from stillhouse.models.encoder import BiEncoder
from stillhouse.releases.model_card import CARD

BASE = "intfloat/multilingual-e5-small"
TEST = {
    "bm25": {"RR@10": 0.25, "R@50": 0.5},
    "zero_shot": {"RR@10": 0.375, "R@50": 0.75},
    "retriever_1": {"RR@10": 0.123456789, "R@50": 0.8125},
    "best": {"RR@10": 0.5, "R@50": 1.0},
}
WINNER = "retriever_1 + BM25"


def made(folder: Path, step: str, config: Any, inputs: Any, facts: Any, files: Any = ()) -> str:
    """Writes what a step would have written, and returns its digest."""
    with whole_folder(folder) as staging:
        for name, content in dict(files).items():
            write_json(staging / name, content)
        write_manifest(staging, step, config, inputs, facts)
    return read_manifest(folder).digest


@pytest.fixture
def workspace(tiny_model: Path, tmp_path: Path) -> Path:
    """A workspace after a run whose winner is retriever 1 with BM25."""
    folder, root = tmp_path / "ws", tmp_path / "ws" / "artifacts"
    root.mkdir(parents=True)
    (folder / "params.yaml").write_text(yaml.safe_dump({"graph": "labelled", "fetch_model": {"model": BASE}}))
    for name in ("ingest", "fetch_model", "retriever_1", "best", "best_run", "evaluate"):
        (root / name).mkdir()
    corpus = made(
        root / "ingest/corpus", "ingest", {}, {}, {"passages": 1234, "queries": {"test": 9}, "titles": "line"}
    )
    made(root / "fetch_model/encoder", "fetch-model", {"weights": "own"}, {}, {"read": {"model": "0ba5e"}})
    trained = {"learning_rate": 3e-05, "lora_rank": 0, "matryoshka_dims": None}
    made(root / "retriever_1/retriever", "train-retriever", trained, {"corpus": corpus}, {"distilled": False})
    facts = {"winner": WINNER, "retriever": "retriever_1", "fusion": "0.5 · BM25 + retriever", "queries": 7}
    dev = {"dev_rr10": {WINNER: 0.8125, "retriever_1": 0.1}, "dev_log_likelihood": {WINNER: -1.5, "retriever_1": -2}}
    with whole_folder(root / "best/retriever") as staging:
        BiEncoder.load(tiny_model, query_prompt="fish ", passage_prompt="red ").save(staging)
        write_manifest(staging, "select-best", {}, {}, facts | dev)
    best = read_manifest(root / "best/retriever").digest
    evaluate(root, made(root / "best_run/run", "retrieve", {}, {"retriever": best}, {}))
    return folder


def evaluate(root: Path, run: str) -> None:
    bounds = {name: {m: [v - 0.0625, v + 0.0625] for m, v in of.items()} for name, of in TEST.items()}
    files = {"metrics.json": TEST, "intervals.json": bounds}
    facts = {"test_queries": 9, "labels": "source"}
    made(root / "evaluate/evaluation", "evaluate", {"measures": ["RR@10", "R@50"]}, {"run/best": run}, facts, files)


def card(workspace: Path, target: Path) -> int:
    return cli.main(["release", "card", "--folder", str(workspace), "--target", str(target)])


def test_the_hub_reads_the_card(workspace: Path, tmp_path: Path) -> None:
    assert card(workspace, tmp_path / "ours") == 0
    page = ModelCard.load(tmp_path / "ours" / CARD)
    assert (page.data.base_model, page.data.license, page.data.language) == (BASE, "mit", "multilingual")
    assert (page.data.library_name, page.data.pipeline_tag) == ("sentence-transformers", "sentence-similarity")
    assert page.data.model_name == "ours"
    assert {one.metric_type: one.metric_value for one in page.data.eval_results} == TEST["retriever_1"]
    rows = [re.split(r" *\| *", line.strip("| ")) for line in page.text.splitlines() if line.startswith("|")]
    table = {cells[0]: cells[1:] for cells in rows}
    assert table["this model"] == ["0.123 [0.061, 0.186]", "0.812 [0.750, 0.875]"]
    assert table["this model with BM25"] == ["0.500 [0.438, 0.562]", "1.000 [0.938, 1.062]"]
    assert table["the base model"][0] == "0.375 [0.312, 0.438]" and table["BM25"][0] == "0.250 [0.188, 0.312]"
    corpus = digest_file(workspace / "artifacts/ingest/corpus/manifest.json")
    assert table["corpus: 1,234 passages, questions: 9 test"] == [f"`{corpus}`"]
    assert table[f"base model: {BASE}"] == ["`0ba5e`"]
    assert "7 dev questions, with an RR@10 of 0.812" in page.text and r"learning\_rate 3e-05" in page.text
    assert str(tmp_path) not in page.content


def test_the_model_is_used_as_the_card_says(workspace: Path, tmp_path: Path) -> None:
    """Also from the folder that `push_to_hub` sends, which is what `save` writes under the name on the Hub."""
    assert card(workspace, tmp_path / "ours") == 0
    SentenceTransformer(str(tmp_path / "ours"), device="cpu").save(str(tmp_path / "sent"), model_name="me/ours")
    text = (tmp_path / "sent" / CARD).read_text()
    assert 'SentenceTransformer("me/ours")' in text
    assert ModelCard(text).data.to_dict() == ModelCard.load(tmp_path / "ours" / CARD).data.to_dict()
    [usage] = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    told: dict[str, Any] = {}
    exec(usage.replace("me/ours", str(tmp_path / "sent")), told)
    winner = SentenceTransformer(str(workspace / "artifacts/best/retriever"), device="cpu")
    expected, other = winner.encode(["fish how do bats hunt?", "how do bats hunt?"], prompt="")
    np.testing.assert_allclose(told["questions"], [expected], atol=1e-5)
    assert not np.allclose(expected, other, atol=1e-4)


def test_a_base_model_s_own_card_has_its_licence(workspace: Path, tiny_model: Path, tmp_path: Path) -> None:
    base = shutil.copytree(tiny_model, tmp_path / "own-bert")
    (base / CARD).write_text("---\nlicense: other\nlicense_name: ours\nlanguage: [de, en]\n---\n# A model\n")
    params = workspace / "params.yaml"
    params.write_text(params.read_text().replace(BASE, str(base)))
    assert card(workspace, tmp_path / "ours") == 0
    data = ModelCard.load(tmp_path / "ours" / CARD).data.to_dict()
    assert (data["license"], data["license_name"], data["language"]) == ("other", "ours", ["de", "en"])
    assert "base_model" not in data and str(tmp_path) not in (tmp_path / "ours" / CARD).read_text()


def test_an_evaluation_of_another_winner_is_refused(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate(workspace / "artifacts", "another run")
    assert card(workspace, tmp_path / "ours") == 2
    assert "evaluation of another winner" in capsys.readouterr().err and not (tmp_path / "ours").exists()
