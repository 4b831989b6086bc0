"""Vectors of texts, through the APIs of OpenAI (`/v1`) and text-embeddings-inference."""

import asyncio
import base64
import json
from collections.abc import Iterable
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import APIRouter, Response
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, Field

from stillhouse.serving.errors import Items, Problem
from stillhouse.serving.release import Release
from stillhouse.serving.search_api import RELEASE, answer_json
from stillhouse.serving.service import ROLES, Served, resized, role_of

router = APIRouter()
ROLE_NAMES = f"{', '.join(ROLES)}; default: query"


def _refuse_token_ids(given: Any) -> Any:
    first = given[0] if isinstance(given, list) and given else None
    if isinstance(first, int | list) and not isinstance(first, bool):
        raise ValueError(
            "these are token ids of another model's tokenizer; send texts (LangChain's OpenAIEmbeddings does with "
            "check_embedding_ctx_length=False; if your program uses tiktoken, leave it out)"
        )
    return given


Texts = Annotated[str | Items[str], BeforeValidator(_refuse_token_ids)]


class EmbeddingsRequest(BaseModel):
    """The request of OpenAI clients; `input_type` is an addition of Cohere, NVIDIA and Voyage."""

    input: Texts = Field(description="one or more texts; token ids are not accepted")
    model: str
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    input_type: str | None = Field(None, description=f"the texts' tower, prompt and length: {ROLE_NAMES}")
    user: str | None = None


@router.post("/v1/embeddings", summary="Vectors, for OpenAI clients")
async def embeddings(body: EmbeddingsRequest, service: Served) -> Response:
    service.check_model(body.model)
    role = role_of(body.input_type, "input_type")
    release = service.releases.current
    made = await service.embed(release, _listed(body.input), role, "input")
    vectors_QD = resized(made.vectors, body.dimensions, release.normalize)
    coded = body.encoding_format == "base64"
    data = await _json_list(
        {"object": "embedding", "index": number, "embedding": _base64(vector_D) if coded else vector_D.tolist()}
        for number, vector_D in enumerate(vectors_QD)
    )
    usage = {"prompt_tokens": made.tokens, "total_tokens": made.tokens}
    head = json.dumps({"object": "list", "model": service.model, "release": release.name, "usage": usage})
    return _answer(f'{head[:-1]}, "data": {data}}}', release)


@router.get("/v1/models", summary="The one model, for OpenAI clients")
async def models(service: Served) -> Response:
    release = service.releases.current
    entry = {"id": service.model, "object": "model", "created": 0, "owned_by": "stillhouse", "release": release.name}
    return answer_json({"object": "list", "data": [entry]}, release)


class EmbedRequest(BaseModel):
    """The request of text-embeddings-inference clients. Texts are always truncated to the model's length."""

    inputs: Texts
    prompt_name: str | None = Field(None, description=ROLE_NAMES)
    normalize: bool | None = Field(None, description="true: length 1; default: as in the index")
    dimensions: int | None = None


@router.post("/", summary="The same as `/embed`")
@router.post("/embed", summary="Vectors, as text-embeddings-inference gives them")
async def embed(body: EmbedRequest, service: Served) -> Response:
    role = role_of(body.prompt_name, "prompt_name")
    release = service.releases.current
    if body.normalize is False and release.normalize:
        raise Problem(422, "this model's vectors have length 1; leave `normalize` out")
    made = await service.embed(release, _listed(body.inputs), role, "inputs")
    vectors_QD = resized(made.vectors, body.dimensions, release.normalize)
    if body.normalize:
        vectors_QD = vectors_QD / np.maximum(np.linalg.norm(vectors_QD, axis=1, keepdims=True), np.float32(1e-12))
    return _answer(await _json_list(vector_D.tolist() for vector_D in vectors_QD), release)


def _listed(texts: str | list[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else texts


def _base64(vector_D: NDArray[np.float32]) -> str:
    return base64.b64encode(vector_D.astype("<f4").tobytes()).decode("ascii")


async def _json_list(entries: Iterable[Any]) -> str:
    """The JSON of a list. Two thousand vectors take seconds, so other clients get their turn after each entry."""
    made = []
    for entry in entries:
        made.append(json.dumps(entry, separators=(",", ":")))
        await asyncio.sleep(0)
    return f"[{','.join(made)}]"


def _answer(content: str, release: Release) -> Response:
    return Response(content, media_type="application/json", headers={RELEASE: release.name})
