"""The Open Inference Protocol V2 over HTTP: texts in, vectors out, for the clients of KServe and Triton."""

from math import prod
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

from stillhouse import __version__
from stillhouse.serving.errors import Items, Problem
from stillhouse.serving.search_api import answer_json
from stillhouse.serving.service import Served, role_of

router = APIRouter(prefix="/v2", strict_content_type=False)  # Triton's client sends none


class Tensor(BaseModel):
    name: str
    shape: Items[int]
    datatype: str
    data: Items[str]


class Wanted(BaseModel):
    name: str


class InferRequest(BaseModel):
    """One tensor `text` of datatype BYTES with one dimension; `parameters.input_type` is `query` or `passage`."""

    id: str | None = None
    inputs: Items[Tensor]
    outputs: Items[Wanted] | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)


@router.get("", summary="The server, its version and extensions")
async def server() -> dict[str, Any]:
    return {"name": "stillhouse", "version": __version__, "extensions": []}


@router.get("/health/live", summary="Whether the service is alive")
async def live() -> dict[str, bool]:
    return {"live": True}


@router.get("/health/ready", summary="Whether the service answers")
async def ready(service: Served) -> dict[str, bool]:
    return {"ready": service.releases.current is not None}


@router.get("/models/{name}", summary="The inputs and outputs of the model")
async def model(name: str, service: Served) -> Response:
    service.check_model(name)
    release = service.releases.current
    content = {
        "name": service.model,
        "versions": [release.name],
        "platform": "stillhouse",
        "inputs": [{"name": "text", "datatype": "BYTES", "shape": [-1]}],
        "outputs": [{"name": "embedding", "datatype": "FP32", "shape": [-1, release.index.width]}],
    }
    return answer_json(content, release)


@router.get("/models/{name}/ready", summary="Whether the model answers")
async def model_ready(name: str, service: Served) -> dict[str, Any]:
    service.check_model(name)
    return {"name": service.model, "ready": True}


@router.post("/models/{name}/infer", summary="Vectors of texts")
async def infer(name: str, body: InferRequest, service: Served) -> Response:
    service.check_model(name)
    if len(body.inputs) != 1 or body.inputs[0].name != "text" or body.inputs[0].datatype != "BYTES":
        raise Problem(422, "give a single input named `text` with the datatype BYTES")
    [tensor] = body.inputs
    if prod(tensor.shape) != len(tensor.data) or len(tensor.shape) not in (1, 2) or min(tensor.shape) < 0:
        raise Problem(422, f"the shape {tensor.shape[:8]} does not fit the {len(tensor.data)} texts of `data`")
    for wanted in body.outputs or ():
        if wanted.name != "embedding":
            raise Problem(422, f"there is no output {wanted.name[:80]!r}; the one output is `embedding`")
    role = role_of(body.parameters.get("input_type"), "parameters.input_type")
    release = service.releases.current
    made = await service.embed(release, tensor.data, role, "text")
    output = {"name": "embedding", "datatype": "FP32", "shape": list(made.vectors.shape)}
    content: dict[str, Any] = {"model_name": service.model, "model_version": release.name}
    content |= {"id": body.id} if body.id is not None else {}
    return answer_json(content | {"outputs": [output | {"data": made.vectors.reshape(-1).tolist()}]}, release)
