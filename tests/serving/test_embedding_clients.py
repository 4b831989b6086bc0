"""Vectors for the clients of OpenAI, Cohere, NVIDIA, Voyage, text-embeddings-inference and Hugging Face."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from huggingface_hub import InferenceClient, constants
from serving_releases import Running, running

from stillhouse.serving.embeddings_api import _json_list
from stillhouse.serving.release import Release
from stillhouse.serving.settings import Limits

LONG = "where does the red bird one sing in the tree " * 5
"""Longer than the test model reads of a query, so that its vectors as a query and as a passage differ."""
TEXTS = [LONG, "which tree grows", "größe 鳥"]
NAMES = {
    "query": ["query", "QUERY", "search_query", "Search_Query", None],
    "passage": ["passage", "Passage", "document", "search_document", "SEARCH_DOCUMENT"],
}


def post(service: Running, path: str, **body: Any) -> Any:
    answer = service.client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def vectors(service: Running, role: str) -> np.ndarray:
    """What the release itself makes of the texts."""
    release = service.service.releases.current
    return release.encode(release.tokenize(TEXTS, role), role)


def openai_of(service: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{service.url}/v1", api_key="any", max_retries=0)


@pytest.mark.parametrize("role", NAMES)
def test_a_role_has_many_names(served: Running, role: str) -> None:
    expected, other = vectors(served, role), vectors(served, "query" if role == "passage" else "passage")
    assert np.abs(expected - other).max() > 0.01
    tensor = {"name": "text", "shape": [len(TEXTS)], "datatype": "BYTES", "data": TEXTS}
    for name in NAMES[role]:
        body = {"input": TEXTS, "input_type": name, "encoding_format": None, "dimensions": None, "user": None}
        one = post(served, "/v1/embeddings", model="retriever", **body)["data"]
        np.testing.assert_array_equal(np.array([each["embedding"] for each in one], np.float32), expected)
        np.testing.assert_array_equal(np.float32(post(served, "/embed", inputs=TEXTS, prompt_name=name)), expected)
        answer = post(served, "/v2/models/retriever/infer", inputs=[tensor], parameters={"input_type": name})
        np.testing.assert_array_equal(np.float32(answer["outputs"][0]["data"]), expected.reshape(-1))
    for body in ({"input_type": "classification"}, {"input_type": ""}):
        answer = served.client.post("/v1/embeddings", json={"model": "retriever", "input": "a"} | body)
        assert answer.status_code == 422
        assert all(str(name).lower() in answer.json()["error"]["message"] for name in NAMES[role] if name)


@pytest.mark.parametrize("ids", [[1, 2, 3], [[1, 2], [3]], [[]]])
def test_token_ids_name_the_setting_of_the_client(served: Running, ids: Any) -> None:
    with pytest.raises(openai.UnprocessableEntityError) as refused:
        openai_of(served).embeddings.create(model="retriever", input=ids)
    assert {"message", "type", "param", "code"} == set(refused.value.body)  # type: ignore[arg-type]
    assert refused.value.type == "invalid_request_error"
    assert "check_embedding_ctx_length=False" in str(refused.value) and "tiktoken" in str(refused.value)
    for path in ("/embed", "/"):
        answer = served.client.post(path, json={"inputs": ids})
        assert answer.status_code == 422 and "token ids" in answer.json()["error"]


def test_two_thousand_and_forty_eight_inputs(served: Running) -> None:
    """As many as OpenAI allows; each has the vector that it has alone."""
    client = openai_of(served)
    texts = [f"the {'red' if number % 3 else 'blue'} bird {number}" for number in range(2048)]
    made = client.embeddings.create(model="retriever", input=texts)
    assert [each.index for each in made.data] == list(range(2048))
    for number in (0, 255, 256, 2047):
        [alone] = client.embeddings.create(model="retriever", input=texts[number]).data
        np.testing.assert_allclose(made.data[number].embedding, alone.embedding, atol=1e-6)
    for bad in ([*texts, "one more"], ["a" * 8193, *texts[1:]], ["a" * 3000] * 2048):
        with pytest.raises(openai.APIStatusError) as refused:
            client.embeddings.create(model="retriever", input=bad)
        assert refused.value.status_code == 413
    assert served.client.post("/search", json={"queries": texts}).status_code == 413


def test_others_are_answered_between_the_parts_of_a_large_request(
    two_releases: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline applies to a part, so a large request may take longer."""
    encode, begun = Release.encode, threading.Event()

    def slow(release: Release, ids: Any, role: str) -> Any:
        begun.set()
        time.sleep(0.15)
        return encode(release, ids, role)

    with running(two_releases[0], Limits(texts=4, inputs=40, deadline=1.0)) as service:
        monkeypatch.setattr(Release, "encode", slow)
        answers: list[Any] = []
        body = {"inputs": ["red tree"] * 40}
        thread = threading.Thread(target=lambda: answers.append(service.client.post("/embed", json=body)))
        began = time.monotonic()
        thread.start()
        assert begun.wait(60)
        service.search(query="tree")
        assert thread.is_alive()
        thread.join()
        assert time.monotonic() - began > 1.5 and np.shape(answers[0].json()) == (40, 32)


def test_a_long_answer_is_written_in_turns() -> None:
    turns: list[int] = []

    async def main() -> None:
        async def other() -> None:
            for number in range(50):
                turns.append(number)
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        assert await _json_list([[0.5, 1.5]] * 100) == "[" + ",".join(["[0.5,1.5]"] * 100) + "]"
        assert len(turns) == 50
        await task

    asyncio.run(main())


def test_the_root_embeds_for_programs(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    client = InferenceClient(base_url=served.url)
    np.testing.assert_array_equal(client.feature_extraction(TEXTS), vectors(served, "query"))
    made = client.feature_extraction(TEXTS, prompt_name="document", normalize=True, truncate=True)
    np.testing.assert_allclose(made, vectors(served, "passage"), atol=1e-6)
