"""Only a browser gets a page: any other client gets JSON, whatever it sends and wherever."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from serving_releases import BROWSER, Running, running

METHODS = ("GET", "POST", "DELETE")
ACCEPTS: list[dict[str, str]] = [{"Accept": "application/json"}, {"Accept": "*/*"}, {"Accept": ""}]
BODIES: list[tuple[str, bytes]] = [
    ("application/json", b'{"inputs": "tree"}'),
    ("application/x-www-form-urlencoded", b'{"inputs": "tree"}'),  # as curl -d sends it
    ("text/plain", b'{"query": "tree"}'),
]


@pytest.mark.parametrize("token", ["", "sesame"])
def test_no_address_answers_a_program_with_html(two_releases: list[Path], token: str) -> None:
    with running(two_releases[0], token=token) as service:
        right = {"Authorization": f"Bearer {token}"} if token else {}
        paths = service.client.get("/openapi.json", headers=right).json()["paths"]
        assert {"/", "/docs", "/search", "/v1/rerank"} <= set(paths)
        cases = itertools.product([*paths, "/none", "/docs/", "/?q=a"], METHODS, BODIES, ACCEPTS, (right, {}))
        for path, method, (kind, body), accept, given in cases:
            headers = {"Content-Type": kind} | accept | given
            answer = service.client.request(method, path, content=body, headers=headers)
            assert "html" not in answer.headers.get("Content-Type", "") and "<" not in answer.text[:1]
            if answer.status_code >= 400:
                assert answer.json()


def test_a_program_without_the_token_gets_neither_vectors_nor_the_page(two_releases: list[Path]) -> None:
    with running(two_releases[0], token="sesame") as service:
        right = {"Authorization": "Bearer sesame"}
        for headers, status in ((right, 200), ({}, 401), ({"Cookie": "stillhouse_token=sesame"}, 401)):
            assert service.client.get("/", headers=headers).status_code == status
            for accept in ({}, BROWSER):
                answer = service.client.post("/", json={"inputs": "tree"}, headers=headers | accept)
                assert answer.status_code == status and answer.headers["Content-Type"] == "application/json"


def test_browsers_still_get_pages(served: Running) -> None:
    for path in ("/", "/docs"):
        answer = served.client.get(path, headers=BROWSER)
        assert answer.status_code == 200 and answer.headers["Content-Type"].startswith("text/html")
    assert served.client.get("/docs").json() == served.client.get("/openapi.json").json()
    assert served.client.get("/").json()["release"] == served.service.releases.current.name
