"""Decoders, routers, static embeddings and models with layers after the pooling, through every step of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from exact_ranking import check_training
from families import embedding_gemma, leaf, opened, saved, static
from sentence_transformers import CrossEncoder as Other
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from torch import nn

from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.models.cross_encoder import CrossEncoder
from stillhouse.models.encoder import BiEncoder
from stillhouse.models.pair_scores import score_pairs
from stillhouse.models.settings import InferenceConfig
from stillhouse.pretraining.masked_lm import load_masked_lm

pytestmark = pytest.mark.usefixtures("last_parameters")
Run = Callable[..., dict[str, Path]]
TUNING = {"max_steps": 3, "batch_size": 4, "negatives_per_query": 2, "negatives_depth": 4, "precision": "fp32"}
TUNING |= {"learning_rate": 0.001}


def pooled(pooling: Any) -> Callable[[Transformer], list[nn.Module]]:
    return lambda first: [first, Pooling(32, pooling)]


KINDS = {"decoder": ("qwen3", pooled("lasttoken")), "layers after the pooling": ("gemma3_text", embedding_gemma)}
KINDS |= {
    "router": ("bert", leaf),
    "static embedding": ("bert", static),
    "two poolings": ("bert", pooled(("cls", "max"))),
}
KINDS |= {name: ("bert", pooled(name)) for name in ("max", "mean", "mean_sqrt_len_tokens")}
KINDS |= {"weightedmean": ("qwen3", pooled("weightedmean"))}


def base_model(kind: str, folder: Path) -> Path:
    family, chain = KINDS[kind]
    return saved(chain(opened(family, folder / "transformer")), folder / "base")


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_runs_from_such_a_model(run_step: Run, small_corpus: Path, kind: str, tmp_path: Path) -> None:
    base = str(base_model(kind, tmp_path))
    start = run_step("fetch-model", {}, model=base, query_length=16, passage_length=24)["encoder"]
    run_step("validate", {"corpus": small_corpus, "encoder": start}, min_passages=1, min_train_queries=1)
    made = check_training(run_step, small_corpus, start, TUNING, tmp_path)
    before, after = (BiEncoder.load(folder).state_dict() for folder in (start, made["retriever"]))
    assert any(not before[name].equal(after[name]) for name in before)
    ends = {"start": start, "trained": made["retriever"]}
    inputs = {"corpus": small_corpus, "negatives": made["negatives"], **ends}
    mean = run_step("average", inputs, alphas=[0.5])["retriever"]
    middle = BiEncoder.load(mean).state_dict()
    for name, values in before.items():
        torch.testing.assert_close(middle[name], (values + after[name]) / 2, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", ["decoder", "layers after the pooling"])
def test_queries_get_a_tower_of_their_own(run_step: Run, small_corpus: Path, kind: str, tmp_path: Path) -> None:
    start = run_step("fetch-model", {}, model=str(base_model(kind, tmp_path)), query_length=16, passage_length=24)
    negatives = run_step("bm25", {"corpus": small_corpus}, negatives_depth=5)["negatives"]
    inputs = {"corpus": small_corpus, "encoder": start["encoder"], "negatives": negatives}
    retriever = run_step("train-retriever", inputs, towers="separate", **TUNING)["retriever"]
    encoder = BiEncoder.load(retriever)
    assert encoder.settings.towers == "separate"
    query, passage = encoder.tower("query").state_dict(), encoder.tower("passage").state_dict()
    assert any(not query[name].equal(passage[name]) for name in query)


def test_a_re_ranker_starts_from_a_decoder(run_step: Run, small_corpus: Path, tmp_path: Path) -> None:
    settings = {"query_length": 16, "passage_length": 24}
    start = run_step("fetch-model", {}, model=str(base_model("decoder", tmp_path)), **settings)["encoder"]
    negatives = run_step("bm25", {"corpus": small_corpus}, negatives_depth=5)["negatives"]
    inputs = {"corpus": small_corpus, "negatives": negatives, "init": start}
    folder = run_step("train-reranker", inputs, **TUNING)["reranker"]
    pairs = [("what sings", "the red bird sings"), ("which", "a blue fish swims in the green tree and grows")]
    expected = Other(str(folder), device="cpu").predict(pairs)
    model, context = CrossEncoder.load(folder), Context(tmp_path, "cpu", quiet=True)
    queries, passages = (np.array(side, dtype=object) for side in zip(*pairs))
    exact = InferenceConfig(precision="fp32")
    found = score_pairs(model, queries, passages, np.arange(2), np.arange(2), context, "scoring", exact)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_decoder_is_not_pre_trained(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be pre-trained"):
        load_masked_lm(base_model("decoder", tmp_path), seed=0)
