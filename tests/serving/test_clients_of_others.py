"""Clients that do not know Stillhouse: Triton's client, LangChain, LlamaIndex, and checks of an image."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tritonclient.http as triton
from serving_releases import Running
from tritonclient.utils import InferenceServerException

ROOT = Path(__file__).resolve().parents[2]
TEXTS = ["where does the red bird one sing", "größe 鳥", "which tree grows"]


def vectors(served: Running, texts: list[str], prompt: str = "query") -> np.ndarray:
    return np.array(served.client.post("/embed", json={"inputs": texts, "prompt_name": prompt}).json(), np.float32)


def test_triton_s_client_gets_the_vectors_as_json(served: Running) -> None:
    with triton.InferenceServerClient(served.url.removeprefix("http://")) as client:
        assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("retriever")
        assert client.get_server_metadata()["extensions"] == []
        [takes], [gives] = (client.get_model_metadata("retriever")[side] for side in ("inputs", "outputs"))
        tensor = triton.InferInput(takes["name"], [len(TEXTS)], takes["datatype"])
        tensor.set_data_from_numpy(np.array(TEXTS, dtype=object), binary_data=False)
        wanted = [triton.InferRequestedOutput(gives["name"], binary_data=False)]
        for role in ("query", "passage"):
            answer = client.infer(
                "retriever", [tensor], outputs=wanted, request_id="7", parameters={"input_type": role}
            )
            np.testing.assert_array_equal(answer.as_numpy(gives["name"]), vectors(served, TEXTS, role))
            said = answer.get_response()
            assert said["id"] == "7" and said["model_version"] == served.service.releases.current.name
        with pytest.raises(InferenceServerException, match="is not served here"):
            client.infer("another", [tensor])


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
        assert one.metadata["release"] == served.service.releases.current.name
    # As a part of a chain, which is what a retriever is for.
    chain = retriever | (lambda found: [one.id for one in found])
    assert chain.invoke(TEXTS[0]) == [hit["passage_id"] for hit in answer["hits"]]
    with pytest.raises(ValueError, match="422"):
        example["StillhouseRetriever"](url=served.url, bm25=2).invoke("tree")


def test_llama_index_s_retriever_returns_what_search_finds(served: Running) -> None:
    example = runpy.run_path(str(ROOT / "examples" / "llama_index_retriever.py"))
    retriever = example["StillhouseRetriever"](served.url, top=3)
    [answer] = served.search(query=TEXTS[0], top=3)["answers"]
    found = [(one.node.node_id, one.node.get_content(), one.score) for one in retriever.retrieve(TEXTS[0])]
    assert found == [(hit["passage_id"], hit["text"], hit["score"]) for hit in answer["hits"]]


@pytest.mark.parametrize("example", ["langchain_retriever.py", "llama_index_retriever.py"])
def test_the_example_runs_by_itself(served: Running, example: str) -> None:
    words = [sys.executable, str(ROOT / "examples" / example), served.url, TEXTS[0]]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    [answer] = served.search(query=TEXTS[0], top=5)["answers"]
    assert [line.split("  ")[0] for line in done.stdout.splitlines()] == [hit["passage_id"] for hit in answer["hits"]]


def test_the_check_of_the_images_accepts_the_answer(served: Running) -> None:
    runpy.run_path(str(ROOT / "images" / "checks" / "service.py"))["check"](served.url)
