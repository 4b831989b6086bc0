"""Every bad request gets its code and a sentence, and no request makes the service fail."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving_releases import BROWSER, Running, running

from stillhouse.serving.release import Release
from stillhouse.serving.settings import Limits

SMALL = Limits(texts=4, characters=100, top=20, body=2000)
TENSOR = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["tree"]}
INFER = "/v2/models/retriever/infer"
BAD: dict[str, tuple[str, Any, int]] = {
    "no query": ("/search", {}, 422),
    "both": ("/search", {"query": "a", "queries": ["b"]}, 422),
    "empty": ("/search", {"query": "  "}, 422),
    "no queries": ("/search", {"queries": []}, 422),
    "unknown field": ("/search", {"query": "a", "topp": 3}, 422),
    "top of 0": ("/search", {"query": "a", "top": 0}, 422),
    "top too high": ("/search", {"query": "a", "top": 21}, 422),
    "share": ("/search", {"query": "a", "bm25": 1.5}, 422),
    "number": ("/search", {"query": 7}, 422),
    "half a character": ("/search", {"query": "\ud800"}, 422),
    "half a character in a filter": ("/search", {"query": "a", "filter": {"fields": {"\ud800": 1}}}, 422),
    "release": ("/search", {"query": "a", "release": "none"}, 422),
    "too many": ("/search", {"queries": ["a"] * 5}, 413),
    "too long": ("/search", {"query": "a" * 101}, 413),
    "wider": ("/v1/embeddings", {"model": "retriever", "input": "a", "dimensions": 33}, 422),
    "prompt": ("/embed", {"inputs": "a", "prompt_name": "x"}, 422),
    "not of length 1": ("/embed", {"inputs": "a", "normalize": False}, 422),
    "not an embedding request": ("/", {"query": "a"}, 422),
    "no cross-encoder": ("/rerank", {"query": "a", "texts": ["b"]}, 404),
    "no cross-encoder for Jina": ("/v1/rerank", {"query": "a", "documents": ["b"]}, 404),
    "no text": ("/v2/rerank", {"query": "a", "documents": [{"title": "b"}]}, 422),
    "no results": ("/v2/rerank", {"query": "a", "documents": ["b"], "top_n": 0}, 422),
    "other fields": ("/v1/rerank", {"query": "a", "documents": [{"text": "b"}], "rank_fields": ["title"]}, 422),
    "another re-ranker": ("/v1/rerank", {"query": "a", "documents": ["b"], "model": "x"}, 404),
    "input type of V2": (INFER, {"inputs": [TENSOR], "parameters": {"input_type": ["query"]}}, 422),
    "shape": (INFER, {"inputs": [TENSOR | {"shape": [2]}]}, 422),
    "no shape": (INFER, {"inputs": [TENSOR | {"shape": []}]}, 422),
    "datatype": (INFER, {"inputs": [TENSOR | {"datatype": "FP32"}]}, 422),
    "output": (INFER, {"inputs": [TENSOR], "outputs": [{"name": "x"}]}, 422),
    "V2 model": ("/v2/models/x/infer", {"inputs": [TENSOR]}, 404),
    "no address": ("/nothing", {}, 404),
    "method": ("/info", {}, 405),
}


@pytest.fixture(scope="module")
def small(two_releases: list[Path]) -> Iterator[Running]:
    with running(two_releases[0], SMALL) as service:
        yield service


def sentence(answer: Any, path: str) -> tuple[str, str]:
    """The code and the sentence of an error, in the form of its protocol."""
    found = answer.json()
    if path in ("/v1/rerank", "/v2/rerank"):
        assert found["message"] == found["detail"]
        return "(none)", found["message"]
    if path == "/" or path.startswith(("/embed", "/rerank", "/v2")):
        return found["error_type"], found["error"]
    return found["error"]["code"], found["error"]["message"]


@pytest.mark.parametrize("case", BAD)
def test_bad_requests_have_a_code_and_a_sentence(small: Running, case: str) -> None:
    path, body, status = BAD[case]
    answer = small.client.post(path, content=json.dumps(body), headers={"Content-Type": "application/json"})
    assert answer.status_code == status, answer.text
    code, message = sentence(answer, path)
    assert code and message and "\n" not in message and "Traceback" not in message


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff", b"[" * 1900, b"null", b'{"query": NaN}', b'{"query": "a", "top": 1e999}']
)
def test_invalid_json_is_refused(small: Running, body: bytes) -> None:
    answer = small.client.post("/search", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (400, 422)
    assert sentence(answer, "/search")[1]


def test_large_bodies_are_refused_unread(small: Running) -> None:
    assert small.client.post("/search", content=b"a" * 2001).status_code == 413
    chunks = (b"a" * 500 for _ in range(8))  # without a Content-Length
    assert small.client.post("/search", content=chunks).status_code == 413


def test_a_full_queue_sends_retry_after_and_late_answers_are_dropped(
    two_releases: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    hold, held = threading.Event(), threading.Event()
    encode = Release.encode

    def slow(self: Release, *given: Any) -> Any:
        held.set()
        hold.wait(60)
        return encode(self, *given)

    with running(two_releases[0], Limits(waiting=2, deadline=1.0)) as service:
        monkeypatch.setattr(Release, "encode", slow)
        codes: list[int] = []

        def ask() -> None:
            codes.append(service.client.post("/search", json={"query": "tree"}).status_code)

        threads = [threading.Thread(target=ask) for _ in range(2)]
        threads[0].start()
        assert held.wait(60)
        threads[1].start()
        until = time.monotonic() + 60
        while service.service.batcher.waiting < 2 and time.monotonic() < until:
            time.sleep(0.01)
        refused = service.client.post("/search", json={"query": "tree"})
        assert refused.status_code == 429 and int(refused.headers["Retry-After"]) >= 1
        for thread in threads:
            thread.join()
        assert codes == [504, 504]
        hold.set()
        monkeypatch.undo()
        until = time.monotonic() + 60
        while service.service.batcher.waiting and time.monotonic() < until:
            time.sleep(0.01)
        assert service.search(query="tree")["answers"][0]["hits"]


MANY = 400_000
LONG: dict[str, tuple[str, dict[str, Any] | list[Any]]] = {
    "queries": ("/search", {"queries": [1] * MANY}),
    "token ids": ("/v1/embeddings", {"model": "retriever", "input": [1] * MANY}),
    "inputs": ("/embed", {"inputs": [1] * MANY}),
    "texts of documents": ("/v1/rerank", {"query": "a", "documents": [{}] * MANY}),
    "data": (INFER, {"inputs": [TENSOR | {"data": [1] * MANY}]}),
    "shape": (INFER, {"inputs": [TENSOR | {"shape": [{}] * MANY}]}),
    "tensors": (INFER, {"inputs": [{}] * MANY}),
    "outputs": (INFER, {"inputs": [], "outputs": [{}] * MANY}),
}


@pytest.mark.parametrize("case", LONG)
def test_a_long_body_that_is_wrong_everywhere_is_refused_for_one_reason(served: Running, case: str) -> None:
    """Listing every reason would take gigabytes, and seconds in which nobody gets an answer."""
    path, body = LONG[case]
    content = json.dumps(body, separators=(",", ":"))
    began = time.monotonic()
    answer = served.client.post(path, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == 422 and time.monotonic() - began < 1.5


def test_requests_that_timed_out_are_not_computed_to_the_end(
    two_releases: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large request that has run out of time is not computed to the end."""
    encode = Release.encode

    def slow(release: Release, ids: Any, role: str) -> Any:
        time.sleep(0.05)
        return encode(release, ids, role)

    with running(two_releases[0], Limits(batch_tokens=16, deadline=1.5)) as service:
        monkeypatch.setattr(Release, "encode", slow)
        texts = ["where does the red bird one sing in the tree"] * 200
        assert service.client.post("/embed", json={"inputs": texts}).status_code == 504
        assert service.client.post("/search", json={"query": "tree"}).status_code == 200


def test_a_token_is_required_if_one_is_set(two_releases: list[Path]) -> None:
    with running(two_releases[0], token="sesame") as service:
        body = {"query": "tree"}
        assert service.client.get("/health").status_code == service.client.get("/ready").status_code == 200
        for path in ("/info", "/metrics", "/docs", "/openapi.json", "/v2/models/retriever"):
            assert service.client.get(path).status_code == 401
        for header in (
            {},
            {"Authorization": "Bearer other"},
            {"Authorization": "Basic sesame"},
            {"Cookie": "stillhouse_token=sesame"},
        ):
            answer = service.client.post("/search", json=body, headers=header)
            assert answer.status_code == 401 and answer.headers["WWW-Authenticate"] == "Bearer"
        assert service.client.post("/search", json=body, headers={"Authorization": "Bearer sesame"}).status_code == 200
        assert service.client.post("/", data={"query": "tree"}, headers=BROWSER).status_code == 401
        assert service.client.post("/", data={"query": "tree", "token": "other"}, headers=BROWSER).status_code == 401
        answer = service.client.post("/", data={"query": "tree", "token": "sesame"}, headers=BROWSER)
        assert answer.status_code == 200 and "HttpOnly" in answer.headers["Set-Cookie"]
        assert service.client.post("/", data={"query": "tree"}, headers=BROWSER).status_code == 200  # by the cookie


def test_the_log_of_requests_holds_no_question(two_releases: list[Path]) -> None:
    lines: list[str] = []
    with running(two_releases[0], lines=lines, log_requests=True) as service:
        service.search(query="secretword")
        service.client.post("/", data={"query": "secretword"}, headers=BROWSER)
        service.client.get("/search?q=secretword")
        service.client.get("/secretword")
        service.client.post("/search", json={"query": "secretword", "secretword": 1})
    assert len([line for line in lines if line.startswith(("GET", "POST"))]) == 5
    assert not any("secretword" in line for line in lines)


def test_a_crash_is_an_error_in_json(two_releases: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    with running(two_releases[0], lines=lines) as service:
        monkeypatch.setattr(Release, "about", lambda release: 1 / 0)
        answer = service.client.get("/info")
        assert answer.status_code == 500 and answer.json()["error"]["code"] == "internal_error"
    assert any("ZeroDivisionError" in line for line in lines)


@pytest.mark.parametrize("path", ["/search", "/v1/embeddings", "/v1/rerank"])
def test_a_body_of_another_type_is_refused(served: Running, path: str) -> None:
    answer = served.client.post(path, content=b'{"query": "tree"}', headers={"Content-Type": "text/plain"})
    assert answer.status_code == 415 and "Content-Type: application/json" in answer.text
