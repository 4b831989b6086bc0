"""The binary tensor data extension of the Open Inference Protocol V2, as Triton's and KServe's clients send it.

A body consists of JSON, with its length in bytes in the header `Inference-Header-Content-Length`, and the tensors in
the order of the inputs. A text of the datatype BYTES is its length (four bytes, little-endian) followed by UTF-8.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from fastapi import Request, Response
from starlette.types import Message

from stillhouse.serving.errors import Problem

LENGTH = "inference-header-content-length"
SIZE = "binary_data_size"
LENGTH_OF_TEXT = struct.Struct("<I")
REPLACED = (LENGTH.encode(), b"content-type", b"content-length")


async def as_json(request: Request) -> Request:
    """The same request with all texts in its JSON. Raises `Problem` if the lengths do not fit the body.

    Triton's client sends no content type: bodies without lengths are JSON.
    """
    length = request.headers.get(LENGTH)
    if length is None:
        return request if "content-type" in request.headers else Request(_of_json(request), request.receive)
    body = json.dumps(with_texts(await request.body(), length)).encode()

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request(_of_json(request), receive)


def _of_json(request: Request) -> dict[str, Any]:
    """The request's scope with the content type of JSON."""
    kept = [(name, value) for name, value in request.scope["headers"] if name not in REPLACED]
    return {**request.scope, "headers": [*kept, (b"content-type", b"application/json")]}


def with_texts(body: bytes, length: str) -> Any:
    """The JSON of a body, with its BYTES tensors as `data`."""
    if not (length.isascii() and length.isdigit() and len(length) < 12 and int(length) <= len(body)):
        raise Problem(400, f"the header {LENGTH} is {length[:20]!r}, which is not a valid length of a part of the body")
    end = int(length)
    try:
        content = json.loads(body[:end])
    except (ValueError, RecursionError):
        raise Problem(400, f"the first {end} bytes of the body are not valid JSON") from None
    inputs = content.get("inputs") if isinstance(content, dict) else None
    for tensor in inputs if isinstance(inputs, list) else ():
        parameters = tensor.get("parameters") if isinstance(tensor, dict) else None
        size = parameters.get(SIZE) if isinstance(parameters, dict) else None
        if size is None:
            continue
        if isinstance(size, bool) or not isinstance(size, int) or not 0 <= size <= len(body) - end:
            raise Problem(400, f"a tensor's {SIZE} does not fit the body, which has {len(body) - end} bytes of tensors")
        if tensor.get("datatype") != "BYTES":
            raise Problem(422, "give one input named `text` of the datatype BYTES")
        tensor["data"] = texts_of(body[end : end + size])
        end += size
    if end != len(body):
        raise Problem(400, f"{len(body) - end} bytes of the body belong to no tensor; {SIZE} gives the size of each")
    return content


def texts_of(data: bytes) -> list[str]:
    texts, place = [], 0
    while place < len(data):
        begin = place + LENGTH_OF_TEXT.size
        if begin > len(data):
            raise Problem(400, "a tensor ends within the length of a text")
        place = begin + LENGTH_OF_TEXT.unpack_from(data, place)[0]
        if place > len(data):
            raise Problem(400, "a tensor ends within a text")
        try:
            texts.append(data[begin:place].decode())
        except UnicodeDecodeError:
            raise Problem(422, "a text of the tensor is not valid UTF-8") from None
    return texts


def wants_binary(parameters: Mapping[str, Any], output: Mapping[str, Any]) -> bool:
    """Whether an answer's tensor is to be sent as bytes, by the parameters of the request and of the output."""
    return output.get("binary_data", parameters.get("binary_data_output")) is True


def binary_answer(content: dict[str, Any], output: dict[str, Any], data: bytes, headers: Mapping[str, str]) -> Response:
    """An answer with one tensor behind its JSON."""
    named = output | {"parameters": {SIZE: len(data)}}
    head = json.dumps(content | {"outputs": [named]}).encode()
    more = {LENGTH: str(len(head)), "Content-Type": "application/octet-stream"}
    return Response(head + data, headers={**headers, **more})
