"""Step `average`: the average of two retrievers, the share that dev queries choose, and pairs that are refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from stillhouse.core.artifacts import MANIFEST, read_manifest
from stillhouse.core.config import build
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.models.encoder import BiEncoder
from stillhouse.pipeline.steps.average import Config
from stillhouse.training.negatives import Negatives

Run = Callable[..., dict[str, Path]]
DEPTH = 5
ENDS = ("start", "trained")


@pytest.fixture(scope="module")
def made(
    tmp_path_factory: pytest.TempPathFactory, runs_of_steps: Any, small_corpus: Path, tiny_model: Path
) -> dict[str, Path]:
    """Return the start, a retriever trained from it with large steps, and negatives that the start mined."""
    run = runs_of_steps(tmp_path_factory.mktemp("average"))
    sizes = {"pooling": "mean", "query_length": 16, "passage_length": 24}
    start = run("fetch-model", {}, model=str(tiny_model), **sizes)["encoder"]
    corpus = {"corpus": small_corpus}
    index = run("index", corpus | {"retriever": start})["index"]
    negatives = run("mine", corpus | {"retriever": start, "index": index}, negatives_depth=8)["negatives"]
    short = {"epochs": None, "max_steps": 8, "batch_size": 6, "learning_rate": 0.01, "negatives_per_query": 2}
    inputs = corpus | {"encoder": start, "negatives": negatives}
    trained = run("train-retriever", inputs, **short, negatives_depth=6, precision="fp32")["retriever"]
    return corpus | {"start": start, "trained": trained, "negatives": negatives}


def content(folder: Path) -> dict[str, bytes]:
    """The files of a model without its manifest and its card, which say how it was made."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".md" and path.name != MANIFEST)
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_both_ends_are_the_models_themselves(run_step: Run, made: dict[str, Path]) -> None:
    assert content(run_step("average", made, "one", alphas=[1])["retriever"]) == content(made["trained"])
    found = run_step("average", made, "none", alphas=[0])["retriever"]
    weights = [folder / "model.safetensors" for folder in (found, made["start"], made["trained"])]
    assert weights[0].read_bytes() == weights[1].read_bytes() != weights[2].read_bytes()


def test_weights_are_the_average_of_each_tensor(run_step: Run, made: dict[str, Path]) -> None:
    found = load_file(run_step("average", made, alphas=[0.3])["retriever"] / "model.safetensors")
    start, trained = (load_file(made[name] / "model.safetensors") for name in ENDS)
    assert found.keys() == start.keys() == trained.keys()
    for name, values in found.items():
        slow = [0.7 * a + 0.3 * b for a, b in zip(start[name].double().ravel(), trained[name].double().ravel())]
        np.testing.assert_allclose(values.double().ravel(), slow, rtol=0, atol=1e-6, err_msg=name)


def test_both_towers_and_what_projects_their_vectors_are_averaged(
    run_step: Run, made: dict[str, Path], tmp_path: Path
) -> None:
    for number, name in enumerate(ENDS):
        encoder = BiEncoder.load(made[name], towers="separate")
        encoder.settings = replace(encoder.settings, projection=8)
        torch.manual_seed(number)
        for role in ("passage", "query"):
            encoder.tower(role).projection = torch.nn.Linear(32, 8)
        encoder.save(tmp_path / name)
    inputs = made | {name: tmp_path / name for name in ENDS}
    found = run_step("average", inputs, alphas=[0.25])["retriever"]
    read = 0
    for path in found.rglob("*.safetensors"):
        weights, one, other = (
            load_file(folder / path.relative_to(found)) for folder in (found, *map(inputs.get, ENDS))
        )
        for name, values in weights.items():
            expected = 0.75 * one[name].double() + 0.25 * other[name].double()
            torch.testing.assert_close(values.double(), expected, rtol=0, atol=1e-6)
        read += 1
    assert read == 4, "two Transformers and two linear layers"


def slow_figures(made: dict[str, Path], alpha: float, queries: list[int]) -> tuple[float, float]:
    """Return RR@10 and nDCG@10 of the average of two folders, computed one text and one query at a time."""
    start, encoder = (BiEncoder.load(made[name]).eval() for name in ENDS)
    with torch.no_grad():
        for a, b in zip(start.parameters(), encoder.parameters()):
            b.copy_(a * (1 - alpha) + b * alpha)
    corpus, negatives = Corpus.open(made["corpus"]), Negatives.read(made["negatives"])
    texts, asked = passage_texts(corpus), corpus.queries_of("dev")["text"]

    def vector(text: str, role: Any) -> Tensor:
        with torch.no_grad():
            return encoder(*encoder.texts([text], role).batch([0], torch.device("cpu")), role)[0]

    ranks = []
    for query in queries:
        right = 12 + query
        rows = sorted([right, *(int(row) for row in negatives.rows_QD[12 + query, :DEPTH] if row >= 0)])
        scores = {row: float(vector(asked[query], "query") @ vector(texts[row], "passage")) for row in rows}
        ranks.append(1 + sorted(rows, key=lambda row: -scores[row]).index(right))
    return float(np.mean([1 / rank for rank in ranks])), float(np.mean([1 / math.log2(1 + rank) for rank in ranks]))


@pytest.mark.parametrize("metric", ["rr10", "ndcg10"])
def test_the_share_that_ranks_dev_queries_best_is_taken(run_step: Run, made: dict[str, Path], metric: str) -> None:
    settings = {"alphas": [0, 0.1, 0.4, 1], "eval_depth": DEPTH, "precision": "fp32", "metric_for_best_model": metric}
    found = run_step("average", made, **settings)
    choices = pd.read_csv(found["choices"] / "choices.csv")
    assert list(choices.columns) == ["alpha", "RR@10", "nDCG@10"]
    slow = [slow_figures(made, alpha, list(range(6))) for alpha in (0, 0.1, 0.4, 1)]
    assert len(set(slow)) > 1, "all rank alike"
    np.testing.assert_allclose(choices[["RR@10", "nDCG@10"]], slow, atol=1e-5)
    column = "RR@10" if metric == "rr10" else "nDCG@10"
    best = choices.sort_values([column, "alpha"])["alpha"].iloc[-1]
    facts, figures = read_manifest(found["retriever"]).facts, choices.set_index("alpha").loc[best]
    assert facts["alpha"] == best
    assert all(facts["intervals"][f"dev_{name}"][0] <= figures[name] <= 1 for name in figures.index)


def changed(folder: Path, into: Path, **settings: Any) -> Path:
    BiEncoder.load(folder, **settings).save(into)
    return into


def test_models_that_differ_are_refused(run_step: Run, made: dict[str, Path], tmp_path: Path) -> None:
    refused = {
        "differ in their towers \\('separate' and 'shared'\\)": changed(
            made["start"], tmp_path / "towers", towers="separate"
        ),
        "differ in their pooling \\('cls' and 'mean'\\)": changed(made["start"], tmp_path / "pooling", pooling="cls"),
        "differ in their query_prompt \\('a ' and ''\\)": changed(made["start"], tmp_path / "asked", query_prompt="a "),
        "differ in their passage_prompt \\('a ' and ''\\)": changed(
            made["start"], tmp_path / "read", passage_prompt="a "
        ),
        "differ in their tokenizers": changed(made["start"], tmp_path / "tokenizer"),
        "differ in shape: towers.passage.encoder.encoder.layer.1.*missing": changed(made["start"], tmp_path / "layers"),
    }
    tokenizer = json.loads((tmp_path / "tokenizer" / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["whatever"] = vocabulary.pop(list(vocabulary)[-1])
    (tmp_path / "tokenizer" / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = json.loads((tmp_path / "layers" / "config.json").read_text())
    (tmp_path / "layers" / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))
    weights = load_file(tmp_path / "layers" / "model.safetensors")
    kept = {name: value for name, value in weights.items() if "layer.1." not in name}
    save_file(kept, tmp_path / "layers" / "model.safetensors", metadata={"format": "pt"})
    for message, start in refused.items():
        with pytest.raises(InputError, match=f"{message}.*; give the encoder that the training started from"):
            run_step("average", made | {"start": start})


@pytest.mark.parametrize("shares", [[], [-0.1], [1.1], [0.5, 0.5], ["half"], [float("nan")], "0.5+1", 0.5])
def test_invalid_shares_are_refused(shares: object) -> None:
    with pytest.raises(InputError, match="alphas"):
        build(Config, {"alphas": shares}, "here")
