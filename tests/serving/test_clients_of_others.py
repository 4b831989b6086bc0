"""Clients that do not know Stillhouse: Triton's client, LangChain, and checks of an image."""

from __future__ import annotations

import json
import runpy
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from serving_releases import Running
from tritonclient.utils import InferenceServerException

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["where does the red bird one sing", "größe 鳥", "which tree grows"]
INFER = "/v2/models/retriever/infer"


def vectors(served: Running, texts: list[str], prompt: str = "query") -> np.ndarray:
    return np.array(served.client.post("/embed", json={"inputs": texts, "prompt_name": prompt}).json(), np.float32)


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False, None])
def test_triton_s_client_gets_the_vectors(served: Running, binary_in: bool, binary_out: bool | None) -> None:
    with triton.InferenceServerClient(served.url.removeprefix("http://")) as client:
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("retriever")
        assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
        [takes], [gives] = (client.get_model_metadata("retriever")[side] for side in ("inputs", "outputs"))
        tensor = triton.InferInput(takes["name"], [len(TEXTS)], takes["datatype"])
        tensor.set_data_from_numpy(np.array(TEXTS, dtype=object), binary_data=binary_in)
        wanted = None if binary_out is None else [triton.InferRequestedOutput(gives["name"], binary_data=binary_out)]
        for role in ("query", "passage"):
            answer = client.infer(
                "retriever", [tensor], outputs=wanted, request_id="7", parameters={"input_type": role}
            )
            np.testing.assert_array_equal(answer.as_numpy(gives["name"]), vectors(served, TEXTS, role))
            said = answer.get_response()
            assert said["id"] == "7" and said["model_version"] == served.service.shelf.current.name
        with pytest.raises(InferenceServerException, match="is not served here"):
            client.infer("another", [tensor])


def binary(texts: list[bytes], size: int | None = None, **tensor: Any) -> tuple[bytes, bytes]:
    data = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    parameters = {"binary_data_size": len(data) if size is None else size}
    described = {"name": "text", "shape": [len(texts)], "datatype": "BYTES", "parameters": parameters} | tensor
    return json.dumps({"inputs": [described]}).encode(), data


def post(served: Running, head: bytes, data: bytes, length: str | None = None) -> Any:
    headers = {"Inference-Header-Content-Length": length if length is not None else str(len(head))}
    return served.client.post(INFER, content=head + data, headers=headers)


@pytest.mark.parametrize(
    ("head", "data", "length", "status"),
    [
        (*binary([b"tree"]), None, 200),
        (*binary([b"tree"]), "9999", 400),
        (*binary([b"tree"]), "-1", 400),
        (*binary([b"tree"]), "1_0", 400),
        (*binary([b"tree"]), "5", 400),
        (*binary([b"tree"], size=7), None, 400),
        (*binary([b"tree"], size=9), None, 400),
        (*binary([b"tree"], size=-1), None, 400),
        (*binary([b"tree", b"\xff"]), None, 422),
        (*binary([b"tree"], datatype="FP32"), None, 422),
        (*binary([b"tree"], shape=[2]), None, 422),
        (*binary([]), None, 422),
        (binary([b"a"], size=6)[0], b"\xff\xff\xff\xffab", None, 400),
        (binary([b"a"], size=2)[0], b"ab", None, 400),
        (b"[" * 5000, b"", None, 400),
        (b"[]", b"", None, 422),
        (b'{"inputs": [1]}', b"", None, 422),
    ],
)
def test_lengths_that_do_not_fit_are_bad_requests(
    served: Running, head: bytes, data: bytes, length: str | None, status: int
) -> None:
    answer = post(served, head, data, length)
    assert answer.status_code == status, answer.text
    if status != 200:
        assert set(answer.json()) == {"error", "error_type"} and "\n" not in answer.json()["error"]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(head=st.binary(max_size=80), data=st.binary(max_size=40), size=st.integers(-2, 60), length=st.integers(-1, 200))
def test_no_lengths_make_the_service_fail(served: Running, head: bytes, data: bytes, size: int, length: int) -> None:
    good, _ = binary([b"tree"], size=size)
    for first in (head, good):
        for said in (str(length), str(len(first))):
            assert post(served, first, data, said).status_code in (200, 400, 413, 422)


def test_langchain_s_retriever_returns_what_search_finds(served: Running) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "langchain_retriever.py"))
    retriever = example["StillhouseRetriever"](url=served.url, top=3, bm25=0.2)
    documents = retriever.invoke(TEXTS[0])
    [answer] = served.search(query=TEXTS[0], top=3, bm25=0.2)["answers"]
    assert [(one.id, one.page_content) for one in documents] == [
        (hit["passage_id"], hit["text"]) for hit in answer["hits"]
    ]
    for one, hit in zip(documents, answer["hits"]):
        assert one.metadata["title"] == hit["title"] and one.metadata["score"] == hit["score"]
        assert one.metadata["release"] == served.service.shelf.current.name
    # As a part of a chain, which is what a retriever is for.
    chain = retriever | (lambda found: [one.id for one in found])
    assert chain.invoke(TEXTS[0]) == [hit["passage_id"] for hit in answer["hits"]]
    with pytest.raises(ValueError, match="404"):
        example["StillhouseRetriever"](url=served.url, release="absent").invoke("tree")


def test_the_example_runs_by_itself(served: Running) -> None:
    words = [sys.executable, str(ROOT / "examples" / "langchain_retriever.py"), served.url, TEXTS[0]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    [answer] = served.search(query=TEXTS[0], top=5)["answers"]
    assert [line.split("  ")[0] for line in done.stdout.splitlines()] == [hit["passage_id"] for hit in answer["hits"]]


def test_the_check_of_the_images_accepts_the_answer(served: Running) -> None:
    runpy.run_path(str(ROOT / "images" / "checks" / "service.py"))["check"](served.url)
