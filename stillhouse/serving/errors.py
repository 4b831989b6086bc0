"""What a client gets instead of an answer: a code and one sentence."""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, FailFast
from starlette.exceptions import HTTPException

from stillhouse.core.terminal import visible

CODES = {
    400: "bad_request",
    401: "unauthorized",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
    422: "invalid_request",
    429: "queue_full",
    500: "internal_error",
    503: "unavailable",
    504: "deadline_exceeded",
    507: "insufficient_storage",
}
RERANK = ("/v1/rerank", "/v2/rerank")
"""Paths of Cohere, whose clients read `message`, and of Jina, whose clients read `detail`."""
PLAIN = ("/embed", "/rerank", "/v2")
"""Paths of protocols whose errors are a sentence, not an object. So is "/" for programs."""


class _AtTheFirst(FailFast):
    __hash__ = object.__hash__  # members of a union must be hashable


T = TypeVar("T")
Items = Annotated[list[T], _AtTheFirst()]
"""A list in a body, rejected at its first invalid item: reporting every item of a million would take gigabytes."""


class Strict(BaseModel):
    """A body of Stillhouse's own endpoints: an unknown key is an error, and no value is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Problem(HTTPException):
    """A request without an answer: an HTTP status and a sentence with the remedy."""


def error_body(path: str, status: int, message: str) -> dict[str, Any]:
    """The error in the format of a path's protocol: OpenAI's object, or the sentence of TEI, V2, Cohere and Jina."""
    code, message = CODES.get(status, "error"), visible(message)
    if path in RERANK:
        return {"message": message, "detail": message}
    if path == "/" or path.startswith(PLAIN):
        return {"error": message, "error_type": code}
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def error_response(path: str, status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse(error_body(path, status, message), status, dict(headers or {}))


async def on_http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    said = {404: "there is no such endpoint; see /docs", 405: "this endpoint needs another method; see /docs"}
    message = str(error.detail) if isinstance(error, Problem) else said.get(error.status_code, str(error.detail))
    return error_response(request.url.path, error.status_code, message, error.headers)


async def on_invalid(request: Request, error: Exception) -> JSONResponse:
    """The first error in a body: where it is, and what was expected. The body itself is not repeated."""
    assert isinstance(error, RequestValidationError)
    if isinstance(error.body, bytes):
        message = "send the body as JSON, with the header `Content-Type: application/json`"
        return error_response(request.url.path, 415, message)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:])
    message = f"{where or 'the body'}: {first['msg'].removeprefix('Value error, ')}; see /docs"
    return error_response(request.url.path, 422, message)
