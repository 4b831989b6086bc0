"""Vectors and scores of texts in memory equal those of sentence-transformers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder as PeerCrossEncoder
from sentence_transformers import SentenceTransformer

import stillhouse

TEXTS = ["the red bird sings", "a fish", "where does the green tree one grow in the tree"]
SETTINGS = {"query_length": 16, "passage_length": 24, "pooling": "mean"}


@pytest.mark.parametrize("role", ["query", "passage"])
def test_vectors(tiny_model: Path, tmp_path: Path, role: str) -> None:
    model = stillhouse.fetch_model(tiny_model, tmp_path, **SETTINGS)
    vectors_ND = stillhouse.encode(stillhouse.BiEncoder.load(str(model.folder)), TEXTS, role)
    peer = SentenceTransformer(str(model.folder), device="cpu")
    assert vectors_ND.dtype == np.float32 and vectors_ND.shape == (3, 32)
    np.testing.assert_allclose(vectors_ND, peer.encode(TEXTS, normalize_embeddings=True), atol=1e-2)
    np.testing.assert_allclose(np.linalg.norm(vectors_ND, axis=1), 1, atol=1e-5)


def test_scores(tiny_model: Path, small_corpus: Path, tmp_path: Path) -> None:
    model = stillhouse.fetch_model(tiny_model, tmp_path / "model", **SETTINGS)
    negatives = stillhouse.bm25(small_corpus, tmp_path / "bm25", negatives_depth=4).negatives
    reranker = stillhouse.train_reranker(
        small_corpus, negatives, model, tmp_path / "reranker", max_steps=1, batch_size=2, negatives_per_query=1,
        negatives_depth=4, eval_steps=100, max_length=32,
    )  # fmt: skip
    weights = load_file(reranker.folder / "model.safetensors")
    wide = {
        name: value * (10 if value.ndim == 2 else 1) for name, value in weights.items()
    }  # larger weights, so that scores differ in bfloat16
    save_file(wide, reranker.folder / "model.safetensors", {"format": "pt"})
    pairs = [(TEXTS[2], TEXTS[0]), (TEXTS[1], TEXTS[2]), (TEXTS[0], TEXTS[1])]
    scores_P = stillhouse.predict(stillhouse.CrossEncoder.load(str(reranker.folder)), pairs)
    peer = PeerCrossEncoder(str(reranker.folder), device="cpu")
    assert scores_P.dtype == np.float32 and scores_P.shape == (3,)
    np.testing.assert_allclose(scores_P, peer.predict(pairs), atol=0.02)
    turned = peer.predict([(passage, query) for query, passage in pairs])
    assert np.abs(scores_P - turned).max() > 0.02


def test_a_wrong_call_is_reported_in_one_sentence(tiny_model: Path, tmp_path: Path) -> None:
    encoder = stillhouse.BiEncoder.load(stillhouse.fetch_model(tiny_model, tmp_path, **SETTINGS))
    with pytest.raises(stillhouse.InputError, match="role must be 'query' or 'passage', not 'document'"):
        stillhouse.encode(encoder, TEXTS, "document")
    with pytest.raises(stillhouse.InputError, match="texts must be a list"):
        stillhouse.encode(encoder, "one", "query")
    with pytest.raises(stillhouse.InputError, match="pair 0 is not a query and a passage"):
        stillhouse.predict(encoder, ["ab"])
