"""A smaller query tower on the index of a large model: fewer layers, or another model with a projection."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from families import opened, saved
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling

from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.models.acceleration.unpadded import without_padding
from stillhouse.models.encoder import BiEncoder
from stillhouse.models.new_towers import keep_layers, ridge
from stillhouse.search.searcher import Searcher
from stillhouse.serving.release import Ranked, Release

Run = Callable[..., dict[str, Path]]
TUNING = {"max_steps": 150, "epochs": None, "batch_size": 12, "learning_rate": 0.003, "precision": "fp32"}


def check_tower(made: dict[str, Path], indexed: dict[str, Path], work: Path) -> None:
    """Passages keep their vectors, sentence-transformers and `Searcher` agree, and queries come near the large ones."""
    corpus = Corpus.open(indexed["corpus"])
    queries, texts = list(corpus.queries["text"]), passage_texts(corpus)
    large, both = (SentenceTransformer(str(folder), device="cpu") for folder in (indexed["encoder"], made["retriever"]))
    passages_ND = large.encode_document(texts)
    np.testing.assert_allclose(both.encode_document(texts), passages_ND, atol=1e-5)
    small_QD, large_QD = both.encode_query(queries), large.encode_query(queries)
    assert (small_QD * large_QD).sum(axis=1).mean() > 0.9
    context, folders = Context(work, "cpu", quiet=True), made | {"corpus": indexed["corpus"]}
    searcher = Searcher(folders["corpus"], folders["retriever"], folders["index"], context)
    release = Release({name: folders[name] for name in ("corpus", "retriever", "index")}, context)
    served = release.rank(
        queries, release.encode(release.tokenize(queries, "query"), "query"), [Ranked(1)] * len(queries)
    )
    for query, vector_D, found in zip(queries[:4], small_QD, served):
        best = pytest.approx((passages_ND @ vector_D).max(), abs=1e-5)
        assert searcher.search(query, 1)[0].score == best and found.scores == [best]


def test_fewer_layers_of_the_same_model(run_step: Run, indexed: dict[str, Path], tmp_path: Path) -> None:
    made = run_step("train-query-encoder", indexed, layers=1, **TUNING)
    encoder = BiEncoder.load(made["retriever"])
    counts = [encoder.tower(role).encoder.config.num_hidden_layers for role in ("query", "passage")]  # type: ignore[union-attr]
    assert counts == [1, 2]
    check_tower(made, indexed, tmp_path)
    epoch = run_step("train-query-encoder", indexed, "epoch", layers=1, **TUNING | {"max_steps": None, "epochs": 1})
    sentences = [text for text in passage_texts(Corpus.open(indexed["corpus"])) if len(text.split()) >= 4]
    queries = Corpus.open(indexed["corpus"]).queries_of("train")
    steps = pd.read_csv(epoch["curves"] / "curves.csv")["step"].iloc[-1]
    assert steps == -(-(len(queries) + len(sentences)) // 12)
    with pytest.raises(InputError, match="the model has 2"):
        run_step("train-query-encoder", indexed, "refused", layers=2, **TUNING)


def test_one_layer_computes_no_padding(run_step: Run, tiny_model: Path) -> None:
    settings = {"model": str(tiny_model), "pooling": "cls", "query_length": 16, "passage_length": 24}
    encoder = BiEncoder.load(run_step("fetch-model", {}, "cls", **settings)["encoder"])
    keep_layers(encoder, 1)
    tower = encoder.tower("query").eval()
    ids_BL = torch.randint(5, 20, (3, 9), generator=torch.Generator().manual_seed(0))
    attention_BL = torch.arange(9) < torch.tensor([[9], [4], [2]])
    padded_BD = tower(ids_BL, attention_BL)
    with without_padding(tower):
        torch.testing.assert_close(tower(ids_BL, attention_BL), padded_BD)


def test_another_model_with_a_projection(run_step: Run, indexed: dict[str, Path], tmp_path: Path) -> None:
    chain = [opened("roberta", tmp_path / "transformer"), Pooling(32, "mean"), Dense(32, 20), Normalize()]
    small = saved(chain, tmp_path / "small")
    fetched = run_step("fetch-model", {}, "small", model=str(small), query_length=16, passage_length=24)["encoder"]
    made = run_step("train-query-encoder", indexed | {"small": fetched}, **TUNING)
    check_tower(made, indexed, tmp_path)


def test_the_projection_is_the_ridge_regression() -> None:
    rng = np.random.default_rng(0)
    from_NS, weights_DS, bias_D = rng.normal(size=(400, 5)), rng.normal(size=(7, 5)), rng.normal(size=7)
    found_DS, found_D = ridge(from_NS, from_NS @ weights_DS.T + bias_D)
    np.testing.assert_allclose(found_DS, weights_DS, rtol=0.01, atol=0.01)
    np.testing.assert_allclose(found_D, bias_D, atol=0.01)
