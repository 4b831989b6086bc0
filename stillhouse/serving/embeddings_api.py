"""Vectors and scores of texts, through the APIs of OpenAI (`/v1`) and text-embeddings-inference."""

from __future__ import annotations

import base64
import math
from typing import Any, Literal

import numpy as np
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from stillhouse.serving.errors import Items, Problem
from stillhouse.serving.search_api import answer_json
from stillhouse.serving.service import Role, resized, service_of

router = APIRouter()
PROMPTS: dict[str, str] = {"query": "query", "passage": "passage", "document": "passage"}


class EmbeddingsRequest(BaseModel):
    """The request of OpenAI clients; `input_type` is our addition."""

    model_config = ConfigDict(extra="ignore")
    input: str | Items[str] = Field(description="one or more texts; token ids are not accepted")
    model: str
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    input_type: Role = Field("query", description="which tower, prompt and length to use: a query's or a passage's")
    user: str | None = None


@router.post("/v1/embeddings", summary="Vectors, for OpenAI clients")
async def embeddings(body: EmbeddingsRequest, request: Request) -> Response:
    service = service_of(request)
    service.check_model(body.model)
    release = service.release()
    texts = [body.input] if isinstance(body.input, str) else body.input
    made = await service.embed(release, texts, body.input_type, "input")
    vectors_QD = resized(made.vectors, body.dimensions, release.normalize)
    shown: list[Any] = vectors_QD.tolist()
    if body.encoding_format == "base64":
        shown = [base64.b64encode(vector_D.astype("<f4").tobytes()).decode("ascii") for vector_D in vectors_QD]
    data = [{"object": "embedding", "index": number, "embedding": value} for number, value in enumerate(shown)]
    usage = {"prompt_tokens": made.tokens, "total_tokens": made.tokens}
    content = {"object": "list", "model": service.model, "release": release.name, "data": data, "usage": usage}
    return answer_json(content, release)


@router.get("/v1/models", summary="The one model, for OpenAI clients")
async def models(request: Request) -> Response:
    service = service_of(request)
    release = service.release()
    entry = {"id": service.model, "object": "model", "created": 0, "owned_by": "stillhouse", "release": release.name}
    return answer_json({"object": "list", "data": [entry]}, release)


class EmbedRequest(BaseModel):
    """The request of text-embeddings-inference clients. Texts are always truncated to the model's length."""

    model_config = ConfigDict(extra="ignore")
    inputs: str | Items[str]
    normalize: bool | None = Field(None, description="true: length 1; default: as in the index")
    prompt_name: str | None = Field(None, description="query (default), passage or document")
    dimensions: int | None = None


@router.post("/embed", summary="Vectors, as text-embeddings-inference gives them")
async def embed(body: EmbedRequest, request: Request) -> Response:
    service = service_of(request)
    role = PROMPTS.get(body.prompt_name or "query")
    if role is None:
        raise Problem(422, f"prompt_name must be one of {', '.join(PROMPTS)}")
    release = service.release()
    if body.normalize is False and release.normalize:
        raise Problem(422, "this model's vectors have length 1; leave `normalize` out")
    texts = [body.inputs] if isinstance(body.inputs, str) else body.inputs
    made = await service.embed(release, texts, role, "inputs")
    vectors_QD = resized(made.vectors, body.dimensions, release.normalize)
    if body.normalize and not release.normalize:
        vectors_QD = vectors_QD / np.maximum(np.linalg.norm(vectors_QD, axis=1, keepdims=True), np.float32(1e-12))
    return answer_json(vectors_QD.tolist(), release)


class RerankRequest(BaseModel):
    """The request of text-embeddings-inference clients."""

    model_config = ConfigDict(extra="ignore")
    query: str
    texts: Items[str]
    raw_scores: bool = Field(False, description="true: the model's own scores; default: scores between 0 and 1")
    return_text: bool = False


@router.post("/rerank", summary="A cross-encoder's scores, as text-embeddings-inference gives them")
async def rerank(body: RerankRequest, request: Request) -> Response:
    service = service_of(request)
    release = service.release()
    scores = await service.rerank(release, body.query, body.texts)
    if not body.raw_scores:
        scores = [1 / (1 + math.exp(-max(-700.0, score))) for score in scores]
    order = sorted(range(len(scores)), key=lambda number: (-scores[number], number))
    ranked: list[dict[str, Any]] = [{"index": number, "score": scores[number]} for number in order]
    if body.return_text:
        ranked = [entry | {"text": body.texts[entry["index"]]} for entry in ranked]
    return answer_json(ranked, release)
