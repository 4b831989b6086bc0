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
from transformers import AutoModelForMaskedLM

from stillhouse.artifacts import read_manifest
from stillhouse.config import build
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.errors import InputError
from stillhouse.retrieval.fine_tuning.averaging import averaged
from stillhouse.retrieval.fine_tuning.dev_ranking import DevCandidates
from stillhouse.retrieval.index import corpus_encoding
from stillhouse.retrieval.mining.negatives import Negatives
from stillhouse.retrieval.models.encoder import BiEncoder
from stillhouse.steps.average import Config

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
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != "manifest.json")
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


def test_tensors_of_few_bits_are_averaged_in_float32_and_whole_numbers_stay() -> None:
    """The average of a number with itself is that number, but rounding in between would change it."""
    values = torch.randn(100, generator=torch.Generator().manual_seed(1)).bfloat16()
    rounded = values * 0.7 + values * 0.3
    assert not torch.equal(rounded, values)
    state = {"half": values, "ids": torch.tensor([4, 5])}
    found = averaged(state, state, 0.3)
    assert found["half"].dtype == torch.bfloat16 and torch.equal(found["half"], values)
    assert found["ids"].tolist() == [4, 5]


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
    assert read_manifest(found["retriever"]).facts == {"alpha": best}


def test_of_equal_shares_the_larger_is_taken(
    run_step: Run, made: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    values = iter([0.5, 0.9, 0.9, 0.9, 0.2])
    monkeypatch.setattr(DevCandidates, "measured", lambda *_: {"RR@10": next(values), "nDCG@10": 0.0})
    found = run_step("average", made, alphas=[0.9, 0.75, 0.8, 0.25, 1.0])
    assert read_manifest(found["retriever"]).facts == {"alpha": 0.8}
    monkeypatch.undo()
    alone = run_step("average", made, "alone", alphas=[0.8])
    assert content(found["retriever"]) == content(alone["retriever"])


def test_fewer_dev_queries_are_a_sample_of_them(
    run_step: Run, made: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    real = DevCandidates.measured

    def measured(self: DevCandidates, scores: np.ndarray) -> Any:
        asked.append(list(self.query_ids))
        return real(self, scores)

    monkeypatch.setattr(DevCandidates, "measured", measured)
    for name, seed in (("one", 3), ("same", 3), ("other", 4)):
        run_step("average", made, name, alphas=[0.5], eval_queries=2, seed=seed, precision="fp32")
    assert asked[0] == asked[1] != asked[2] and [len(set(ids)) for ids in asked] == [2, 2, 2]


def test_no_vector_is_computed_twice(
    run_step: Run, made: dict[str, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The share 1 reuses the vectors of the trained retriever's index, and an index reuses those of its share."""
    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path / "work"))
    encoded: list[int] = []
    real = corpus_encoding.encode
    monkeypatch.setattr(
        corpus_encoding, "encode", lambda *given: (encoded.append(len(given[1].lengths())), real(*given))[1]
    )
    inputs = {"corpus": made["corpus"]}
    run_step("index", inputs | {"retriever": made["trained"]}, "of trained")
    everything = sum(encoded)
    encoded.clear()
    run_step("average", made, "trained alone", alphas=[1], eval_depth=DEPTH)
    assert not encoded
    found = run_step("average", made, alphas=[0.5], eval_depth=DEPTH)["retriever"]
    candidates = sum(encoded)
    assert 0 < candidates < everything
    run_step("index", inputs | {"retriever": found}, "of the average")
    assert sum(encoded) == everything


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


def test_a_start_with_a_language_model_head_is_averaged_without_it(
    run_step: Run, made: dict[str, Path], tmp_path: Path
) -> None:
    start = changed(made["start"], tmp_path / "with head")
    AutoModelForMaskedLM.from_pretrained(start).save_pretrained(start)
    found = run_step("average", made | {"start": start}, alphas=[0.5])["retriever"]
    one, other = (load_file(folder / "model.safetensors") for folder in (start, made["trained"]))
    name = "embeddings.word_embeddings.weight"
    expected = (one[f"bert.{name}"].double() + other[name].double()) / 2
    torch.testing.assert_close(load_file(found / "model.safetensors")[name].double(), expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("shares", [[], [-0.1], [1.1], [0.5, 0.5], ["half"], [float("nan")], "0.5+1", 0.5])
def test_invalid_shares_are_refused(shares: object) -> None:
    with pytest.raises(InputError, match="alphas"):
        build(Config, {"alphas": shares}, "here")
