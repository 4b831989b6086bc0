"""A cross-encoder's scores, through the APIs of Cohere, Jina and text-embeddings-inference."""

import math
from collections.abc import Sequence
from uuid import uuid4

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from stillhouse.serving.errors import Items, Problem
from stillhouse.serving.search_api import answer_json
from stillhouse.serving.service import Served

router = APIRouter()


class RerankRequest(BaseModel):
    """The request of text-embeddings-inference clients."""

    query: str
    texts: Items[str]
    raw_scores: bool = Field(False, description="true: the model's own scores; default: scores between 0 and 1")
    return_text: bool = False


@router.post("/rerank", summary="Scores, as text-embeddings-inference gives them")
async def rerank(body: RerankRequest, service: Served) -> Response:
    release = service.releases.current
    scores, _ = await service.rerank(release, body.query, body.texts, "texts")
    ranked = [
        {"index": number, "score": score, **({"text": body.texts[number]} if body.return_text else {})}
        for number, score in best_first(scores, body.raw_scores)
    ]
    return answer_json(ranked, release)


class Document(BaseModel):
    text: str


class RankRequest(BaseModel):
    """The request of Cohere's and Jina's clients. Texts are always truncated to the model's length."""

    query: str
    documents: Items[str | Document]
    model: str | None = None
    top_n: int | None = Field(None, ge=1, description="how many results; default: all")
    return_documents: bool | None = Field(None, description="default: true for `/v1`, as Jina; false for `/v2`")
    rank_fields: Items[str] | None = Field(None, description='only ["text"]')


@router.post("/v1/rerank", summary="Scores, for clients of Cohere's version 1 and of Jina")
@router.post("/v2/rerank", summary="Scores, for clients of Cohere's version 2")
async def rank(body: RankRequest, request: Request, service: Served) -> Response:
    if body.model is not None:
        service.check_model(body.model)
    if body.rank_fields not in (None, ["text"]):
        raise Problem(422, 'rank_fields must be ["text"]; join other fields of a document into its text')
    release = service.releases.current
    texts = [each if isinstance(each, str) else each.text for each in body.documents]
    scores, tokens = await service.rerank(release, body.query, texts, "documents")
    version = request.url.path[2]
    shown = version == "1" if body.return_documents is None else body.return_documents
    results = [
        {"index": number, "relevance_score": score, **({"document": {"text": texts[number]}} if shown else {})}
        for number, score in best_first(scores)[: body.top_n]
    ]
    meta = {"api_version": {"version": version}, "tokens": {"input_tokens": tokens}}
    content = {
        "id": str(uuid4()),
        "object": "list",
        "model": service.model,
        "release": release.name,
        "results": results,
        "meta": meta,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
    }
    return answer_json(content, release)


def best_first(scores: Sequence[float], raw: bool = False) -> list[tuple[int, float]]:
    """Numbers of texts with their scores, best first. Scores are between 0 and 1 unless `raw`."""
    order = sorted(range(len(scores)), key=lambda number: (-scores[number], number))
    return [(number, scores[number] if raw else 1 / (1 + math.exp(-max(-700.0, scores[number])))) for number in order]
