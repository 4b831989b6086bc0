"""A ModernBERT goes through the steps: rotary positions, local layers, no token types, 8,192 positions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from exact_ranking import check_search
from passage_corpora import losses_of
from sentence_transformers import CrossEncoder as TheirCrossEncoder
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.models.cross_encoder import CrossEncoder

Run = Callable[..., dict[str, Path]]
LENGTHS = {"query_length": 12, "passage_length": 24}
TUNING = {"epochs": 100.0, "max_steps": 6, "eval_steps": 2, "batch_size": 4, "learning_rate": 3e-3}
TUNING |= {"negatives_per_query": 2, "negatives_depth": 4, "precision": "fp32"}


def fetched(run_step: Run, model: Path, **settings: object) -> Path:
    return run_step("fetch-model", {}, model=str(model), **(LENGTHS | settings))["encoder"]


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_a_retriever_is_trained_encoded_indexed_and_searched(
    run_step: Run, uneven_corpus: Path, tiny_modernbert: Path, tmp_path: Path, pooling: str
) -> None:
    corpus, start = {"corpus": uneven_corpus}, fetched(run_step, tiny_modernbert, pooling=pooling)
    negatives = run_step("bm25", corpus, negatives_depth=5)["negatives"]
    inputs = {**corpus, "encoder": start, "negatives": negatives}
    trained = run_step("train-retriever", inputs, **TUNING)
    losses = losses_of(trained["curves"])
    assert min(losses) < losses[0]
    retriever = trained["retriever"]

    opened, model = Corpus.open(uneven_corpus), SentenceTransformer(str(retriever), device="cpu")
    passages_ND = model.encode_document(passage_texts(opened))
    vectors = run_step("encode", {**corpus, "retriever": retriever}, precision="fp32")["vectors"]
    np.testing.assert_allclose(np.load(vectors / "passages.vectors.npy"), passages_ND, atol=1e-5)
    tokenizer = AutoTokenizer.from_pretrained(retriever)
    batch = tokenizer(passage_texts(opened), padding=True, return_tensors="pt")
    assert (batch["attention_mask"].sum(1) > 7).all(), "texts are longer than the window of the local layers"
    assert not batch["attention_mask"].all(), "some are padded"
    with torch.no_grad():
        states_BLD = AutoModel.from_pretrained(retriever).eval()(**batch).last_hidden_state
    mask_BL1 = batch["attention_mask"][:, :, None]
    pooled_BD = states_BLD[:, 0] if pooling == "cls" else (states_BLD * mask_BL1).sum(1) / mask_BL1.sum(1)
    np.testing.assert_allclose(passages_ND, torch.nn.functional.normalize(pooled_BD, dim=1), atol=1e-5)

    check_search(run_step, uneven_corpus, retriever, model, passages_ND, tmp_path)


def test_a_cross_encoder_is_trained_and_scores_as_others_do(
    run_step: Run, uneven_corpus: Path, tiny_modernbert: Path, tmp_path: Path
) -> None:
    corpus = {"corpus": uneven_corpus}
    negatives = run_step("bm25", corpus, negatives_depth=5)["negatives"]
    inputs = {**corpus, "init": fetched(run_step, tiny_modernbert), "negatives": negatives}
    settings = TUNING | {"max_length": 40, "layers": 3, "learning_rate": 3e-3}
    found = {
        padding: run_step("train-reranker", inputs, padding, padding=padding, **settings)
        for padding in ("kept", "auto")
    }
    losses = losses_of(found["auto"]["curves"])
    assert min(losses) < losses[0]
    np.testing.assert_allclose(losses_of(found["kept"]["curves"]), losses, rtol=1e-3)

    reranker = found["auto"]["reranker"]
    model = AutoModelForSequenceClassification.from_pretrained(reranker).eval()
    assert (len(model.model.layers), model.config.num_labels) == (3, 1)
    teacher = run_step("score-pairs", {**corpus, "negatives": negatives, "reranker": reranker}, precision="fp32")[
        "teacher"
    ]
    assert np.isfinite(np.load(teacher / "negative_scores.npy")[:, :2]).all()
    loaded = CrossEncoder.load(reranker)
    pairs = [("where does the red bird one sing", text) for text in passage_texts(Corpus.open(uneven_corpus))[:5]]
    with torch.no_grad():
        own = loaded.eval()(*loaded.pairs(*map(list, zip(*pairs))).batch(range(5), torch.device("cpu")))
    np.testing.assert_allclose(TheirCrossEncoder(str(reranker), device="cpu").predict(pairs), own, atol=1e-5)
