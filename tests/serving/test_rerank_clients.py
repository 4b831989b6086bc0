"""Re-ranking in the shapes that the clients of Cohere, Jina and text-embeddings-inference send and read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from serving_releases import Running

QUERY = "where does the red bird one sing"
TEXTS = ["the red bird sings", "tree", "the green fish grows", "one two three", "blue"]


def rank(service: Running, path: str, **body: Any) -> Any:
    answer = service.client.post(path, json={"query": QUERY, "documents": TEXTS} | body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def raw_scores(service: Running) -> np.ndarray:
    """The model's own scores of each text alone."""
    model = service.service.releases.current._reranker._model
    with torch.inference_mode():
        return np.array([float(model(*model.pairs([QUERY], [text]).batch([0], torch.device("cpu")))) for text in TEXTS])


@pytest.mark.parametrize("version", ["1", "2"])
def test_the_ranking_is_that_of_the_cross_encoder(reranking: Running, version: str) -> None:
    """Also for more texts than are scored at once."""
    found = rank(reranking, f"/v{version}/rerank", model="retriever")
    scores = 1 / (1 + np.exp(-raw_scores(reranking)))
    assert [each["index"] for each in found["results"]] == np.argsort(-scores, kind="stable").tolist()
    np.testing.assert_allclose([each["relevance_score"] for each in found["results"]], -np.sort(-scores), atol=1e-6)
    assert found["id"] and found["id"] != rank(reranking, f"/v{version}/rerank")["id"]
    assert found["meta"]["api_version"]["version"] == version
    model = reranking.service.releases.current._reranker._model
    tokens = sum(map(len, model.pairs([QUERY] * len(TEXTS), TEXTS).ids.ids))
    assert found["usage"]["total_tokens"] == found["meta"]["tokens"]["input_tokens"] == tokens


@pytest.mark.parametrize("path", ["/v1/rerank", "/v2/rerank"])
def test_documents_are_texts_or_objects(reranking: Running, path: str) -> None:
    plain = rank(reranking, path)["results"]
    mixed = [TEXTS[0], *({"text": text, "title": "not read"} for text in TEXTS[1:])]
    objects = rank(reranking, path, documents=mixed, rank_fields=["text"])["results"]
    assert objects == plain


def test_documents_are_returned_as_each_client_expects(reranking: Running) -> None:
    """Jina's API returns them by default, version 2 of Cohere's only if asked."""
    for path, asked, shown in [
        ("/v1/rerank", None, True),
        ("/v1/rerank", False, False),
        ("/v2/rerank", None, False),
        ("/v2/rerank", True, True),
    ]:
        results = rank(reranking, path, return_documents=asked)["results"]
        texts = [each.get("document") for each in results]
        assert texts == [{"text": TEXTS[each["index"]]} if shown else None for each in results]


def test_top_n_cuts_the_ranking(reranking: Running) -> None:
    every = rank(reranking, "/v1/rerank")["results"]
    for top in (1, 3, 99):
        assert rank(reranking, "/v1/rerank", top_n=top)["results"] == every[:top]


def test_clients_of_text_embeddings_inference_get_scores_and_texts(reranking: Running) -> None:
    raw = raw_scores(reranking)
    for asked, scores in (({}, 1 / (1 + np.exp(-raw))), ({"raw_scores": True, "return_text": True}, raw)):
        answer = reranking.client.post("/rerank", json={"query": QUERY, "texts": TEXTS} | asked)
        order = np.argsort(-scores, kind="stable")
        assert [each["index"] for each in answer.json()] == order.tolist()
        np.testing.assert_allclose([each["score"] for each in answer.json()], scores[order], atol=1e-6)
        assert [each.get("text") for each in answer.json()] == [TEXTS[row] if asked else None for row in order]


def test_too_many_documents_are_refused(reranking: Running) -> None:
    assert len(rank(reranking, "/v2/rerank", documents=["tree"] * 20)["results"]) == 20
    answer = reranking.client.post("/v2/rerank", json={"query": QUERY, "documents": ["tree"] * 21})
    assert answer.status_code == 413 and "at most 20" in answer.json()["message"]
