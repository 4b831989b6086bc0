"""The cards of retrievers, and the folder that `release card` writes: what the Hub and sentence-transformers read."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml
from huggingface_hub import ModelCard
from sentence_transformers import SentenceTransformer

from stillhouse import cli
from stillhouse.core.artifacts import digest_file, read_manifest, whole_folder, write_json, write_manifest
from stillhouse.core.report import Report
from stillhouse.models.encoder import BiEncoder
from stillhouse.pipeline.steps.fetch_model import Config as Fetched
from stillhouse.pipeline.steps.model_card import CARD, write_card
from stillhouse.pipeline.steps.train_retriever import Config as Trained

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
    base, last = root / "fetch_model/encoder", root / "retriever_1/retriever"
    made(base, "fetch-model", {}, {}, {})
    write_card(base, "fetch-model", Fetched(model=BASE), {}, Report(""), "0ba5e")
    made(last, "train-retriever", {}, {"corpus": corpus}, {})
    facts = {"winner": WINNER, "retriever": "retriever_1", "fusion": "0.5 · BM25 + retriever", "queries": 7}
    dev = {"dev_rr10": {WINNER: 0.8125, "retriever_1": 0.1}, "dev_log_likelihood": {WINNER: -1.5, "retriever_1": -2}}
    with whole_folder(root / "best/retriever") as staging:
        BiEncoder.load(tiny_model, query_prompt="fish ", passage_prompt="red ").save(staging)
        inputs = {"encoder": base, "corpus": root / "ingest/corpus"}
        write_card(staging, "train-retriever", Trained(learning_rate=3e-05), inputs, Report("", {"loss": 0.5}), "")
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
    assert table["corpus of train-retriever: 1,234 passages, questions: 9 test"] == [f"`{corpus}`"]
    assert table["base model"] == ["`0ba5e`"] and f"made from {BASE}" in page.text
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


def test_every_retriever_of_a_run_has_a_card(
    tiny_model: Path, small_corpus: Path, tmp_path: Path, run_step: Callable[..., dict[str, Path]]
) -> None:
    """With its base model's licence, the digests of what it was made of, and what was measured on dev questions."""
    base = shutil.copytree(tiny_model, tmp_path / "own-bert")
    (base / CARD).write_text("---\nlicense: other\nlicense_name: ours\nlanguage: [de, en]\n---\n# A model\n")
    corpus = {"corpus": small_corpus}
    start = run_step("fetch-model", {}, model=str(base), passage_length=32, query_length=16)["encoder"]
    lexical = run_step("bm25", corpus)
    given = corpus | {"encoder": start, "negatives": lexical["negatives"]}
    settings = {"max_steps": 2, "batch_size": 1, "eval_steps": 2, "metric_for_best_model": "rr10"}
    trained = run_step("train-retriever", given, negatives_per_query=1, **settings)
    ends = corpus | {"start": start, "trained": trained["retriever"], "negatives": lexical["negatives"]}
    averaged = run_step("average", ends)["retriever"]
    systems = {"zero_shot": start, "retriever_1": trained["retriever"]}
    inputs = corpus | {"bm25": lexical["bm25"]}
    for name, folder in systems.items():
        inputs[f"candidates/{name}"] = folder
        inputs[f"indexes/{name}"] = run_step("index", corpus | {"retriever": folder}, into=f"{name}_index")["index"]
    best = run_step("select-best", inputs)["retriever"]

    pages = {folder: ModelCard.load(folder / CARD) for folder in (start, trained["retriever"], best)}
    for page in pages.values():
        data = page.data.to_dict()
        assert (data["license"], data["license_name"], data["language"]) == ("other", "ours", ["de", "en"])
        assert "base_model" not in data and str(tmp_path) not in page.content
        expected = {read_manifest(start).facts["read"]["model"]: "base model"}
        if "learning" in page.text:  # the winner may be the base model
            expected[read_manifest(small_corpus).digest] = "corpus of train-retriever: 24 passages, questions: none"
        assert data["stillhouse"]["made_of"] == expected
    assert "learning" not in pages[start].text and "learning" in pages[trained["retriever"]].text
    bounds = read_manifest(trained["retriever"]).facts["intervals"]
    first, second = (bounds[name] for name in ("heldout_loss_start", "dev_RR@10_start"))
    loss = pd.read_csv(trained["curves"] / "curves.csv")["heldout_loss"][0]
    rank = pd.read_csv(trained["curves"] / "signals.csv")["value"][0]
    start_row = f"| {loss:.3f} [{first[0]:.3f}, {first[1]:.3f}] | {rank:.3f} [{second[0]:.3f}, {second[1]:.3f}] |"
    assert first[0] < loss < first[1] and second[0] < rank < second[1]
    text = pages[trained["retriever"]].text
    assert f"| before training {start_row}" in text and "ranked among its best hard negatives" in text
    choices = pd.read_csv(averaged.parent / "choices" / "choices.csv")
    low, high = read_manifest(averaged).facts["intervals"]["dev_RR@10"]
    assert f"| after training | {choices['RR@10'].max():.3f} [{low:.3f}, {high:.3f}] |" in (averaged / CARD).read_text()
    facts = read_manifest(best).facts
    for system, mean in facts["dev_rr10"].items():
        low, high = facts["dev_rr10_interval"][system]
        assert "On 6 dev questions, with" in pages[best].text  # which people wrote
        assert low <= mean <= high and f"| {system} | {mean:.3f} [{low:.3f}, {high:.3f}] |" in pages[best].text


@pytest.mark.parametrize(
    "front",
    [
        b"license: [",
        b"license: !!bool x",
        b"stillhouse: {made_of: [1], steps: 2}\nmodel-index: x\n1: 2",
        b"base_model: /home/me\nmodel-index: [{name: x, results: [{metrics: [{value: 1}]}]}]",
        b"\xff",
    ],
)
def test_a_foreign_card_never_stops_a_training(
    front: bytes, tiny_model: Path, tmp_path: Path, run_step: Callable[..., dict[str, Path]]
) -> None:
    """Nor do its scores, places and steps become those of the model trained from it."""
    base = shutil.copytree(tiny_model, tmp_path / "own-bert")
    (base / CARD).write_bytes(b"---\nlicense: mit\n" + front + b"\n---\n# A model\n")
    start = run_step("fetch-model", {}, model=str(base), passage_length=32, query_length=16)["encoder"]
    data = ModelCard.load(start / CARD).data.to_dict()
    assert data["stillhouse"]["steps"] == ["fetch-model: weights own, layers 2, pooling cls"]
    assert not {"model-index", "base_model", 1} & data.keys()


def test_an_evaluation_of_another_winner_is_refused(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate(workspace / "artifacts", "another run")
    assert card(workspace, tmp_path / "ours") == 2
    assert "evaluation of another winner" in capsys.readouterr().err and not (tmp_path / "ours").exists()
