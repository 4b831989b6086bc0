"""Only a browser gets a page: any other client gets JSON, whatever it sends and wherever."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from serving_releases import BROWSER, Running, running

from stillhouse.serving import status_api

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
ACCEPTS: list[dict[str, str]] = [{"Accept": "application/json"}, {"Accept": "*/*"}, {"Accept": ""}]
BODIES: list[tuple[str, bytes]] = [
    ("application/json", b'{"inputs": "tree"}'),
    ("application/json", b"{"),
    ("application/x-www-form-urlencoded", b"query=tree"),
    ("application/x-www-form-urlencoded", b'{"inputs": "tree"}'),  # as curl -d sends it
    ("text/plain", b'{"query": "tree"}'),
    ("multipart/form-data; boundary=x", b"--x--"),
]


def refuse_html(answer: Any) -> None:
    assert "html" not in answer.headers.get("Content-Type", ""), (answer.request, answer.text)
    assert "<" not in answer.text[:1]
    if answer.status_code >= 400:
        assert answer.json()


@pytest.mark.parametrize("token", ["", "sesame"])
def test_no_address_answers_a_program_with_html(two_releases: list[Path], token: str) -> None:
    with running(two_releases[0], token=token) as service:
        right = {"Authorization": f"Bearer {token}"} if token else {}
        addresses = service.client.get("/openapi.json", headers=right).json()["paths"]
        assert {"/", "/docs", "/search", "/v1/rerank"} <= set(addresses)
        for path, method in itertools.product([*addresses, "/none", "/v1/none", "/docs/", "//", "/?q=a"], METHODS):
            for accept, given in itertools.product(ACCEPTS, [right, {}] if token else [{}]):
                refuse_html(service.client.request(method, path, headers=accept | given))
        for path, (kind, body) in itertools.product([*addresses, "/none"], BODIES):
            headers = {"Content-Type": kind} | right
            refuse_html(service.client.post(path, content=body, headers=headers))


def test_a_program_without_the_token_gets_neither_vectors_nor_the_page(two_releases: list[Path]) -> None:
    with running(two_releases[0], token="sesame") as service:
        right = {"Authorization": "Bearer sesame"}
        for headers, status in ((right, 200), ({}, 401), ({"Cookie": "stillhouse_token=sesame"}, 401)):
            assert service.client.get("/", headers=headers).status_code == status
            for accept in ({}, BROWSER):
                answer = service.client.post("/", json={"inputs": "tree"}, headers=headers | accept)
                assert answer.status_code == status and answer.headers["Content-Type"] == "application/json"


def test_a_crash_is_json(two_releases: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(value: object) -> None:
        raise ZeroDivisionError

    with running(two_releases[0]) as service:
        monkeypatch.setattr(status_api, "said", crash)
        answer = service.client.get("/info")
        assert answer.status_code == 500 and answer.json()["error"]["code"] == "internal_error"


def test_browsers_still_get_pages(served: Running) -> None:
    for answer in (
        served.client.get("/", headers=BROWSER),
        served.client.post("/", data={"query": "tree"}, headers=BROWSER),
        served.client.get("/docs", headers=BROWSER),
    ):
        assert answer.status_code == 200 and answer.headers["Content-Type"].startswith("text/html")
    assert served.client.get("/docs").json() == served.client.get("/openapi.json").json()
    assert served.client.get("/").json()["release"] == served.service.shelf.current.name


@pytest.mark.parametrize("path", ["/search", "/embed", "/v1/embeddings", "/v1/rerank", "/"])
def test_a_body_of_another_type_is_refused(served: Running, path: str) -> None:
    answer = served.client.post(path, content=b'{"inputs": "tree"}', headers={"Content-Type": "text/plain"})
    assert answer.status_code == 415 and "Content-Type: application/json" in answer.text
