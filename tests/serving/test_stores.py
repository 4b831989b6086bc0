"""Each store against brute force over the vectors of a release, and what a publish leaves when it fails."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from postgres_server import PASSWORD, postgres_server
from s3_server import BUCKET, s3_server
from serving_releases import open_release, running

from stillhouse.cli import serve
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.serving.release import Release
from stillhouse.serving.source import FolderSource
from stillhouse.serving.stores import publish as publishing
from stillhouse.serving.stores.publish import publish, roll_back, table_of
from stillhouse.serving.stores.searcher import StoreSearcher
from stillhouse.serving.stores.store import Store, open_store

QUESTION = "where does the red bird one sing"
NEW = {"passage_id": "new/1", "title": "blue tree", "text": "the red bird one sings", "fields": {"page": 7, "x": 1.0}}


quiet = Context(Path(), quiet=True)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server() as address:
        yield address


@pytest.fixture(params=["postgresql", "qdrant", "lancedb", "bucket"])
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address of each store, for releases of its own."""
    if request.param == "postgresql":
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
        yield f"{request.getfixturevalue('server')}#r{os.urandom(4).hex()}"
    elif request.param == "bucket":
        with s3_server(monkeypatch) as endpoint:
            monkeypatch.setenv("AWS_ENDPOINT", endpoint)
            monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
            yield f"lancedb:s3://{BUCKET}/{os.urandom(4).hex()}"  # the server in this process forgets nothing
    else:
        yield f"{request.param}:{tmp_path / 'store'}"


@pytest.fixture(scope="module")
def releases(two_releases: list[Path]) -> list[Release]:
    return [open_release(FolderSource(folder)) for folder in two_releases]


def brute(release: Release, question: str, top: int = 24) -> tuple[list[str], np.ndarray]:
    """Ranks all passages by their inner products in float64."""
    vectors = release.index.vectors(np.arange(24, dtype=np.int32)).astype(np.float64)
    scores = vectors @ release.encode(release.tokenize([question], "query"), "query")[0].astype(np.float64)
    order = np.argsort(-scores, kind="stable")[:top]
    return [row["passage_id"] for row in release.passages.at(order.tolist(), "passage_id")], scores[order]


def searcher_of(release: Release, store: Store) -> StoreSearcher:
    return StoreSearcher(store, release.digests["retriever"], release._queries, release._passages)


def same_as_brute(searcher: StoreSearcher, release: Release) -> None:
    for question in (QUESTION, "tree", "green fish"):
        ids, scores = brute(release, question)
        found = searcher.search(question, 24)
        np.testing.assert_allclose([hit.score for hit in found], scores, atol=1e-4)
        by_id = dict(zip(ids, scores))
        np.testing.assert_allclose([by_id[hit.passage_id] for hit in found], scores, atol=1e-4)  # ties may swap


def test_a_published_release_answers_as_brute_force(address: str, releases: list[Release]) -> None:
    first, second = releases
    store = open_store(address)
    with pytest.raises(InputError, match="no release is published"):
        searcher_of(first, store)
    table = publish(first, store, quiet)
    asked = searcher_of(first, store)
    same_as_brute(asked, first)
    [best] = asked.search(QUESTION, 1)
    row = next(
        place for place in range(24) if first.passages.at([place], "passage_id")[0]["passage_id"] == best.passage_id
    )
    assert (best.title, best.text) == tuple(first.passages.at([row], "title", "text")[0].values())
    assert best.fields == first.passages.fields_at([row])[0]
    assert publish(first, store, quiet) == table  # does nothing
    with pytest.raises(InputError, match="another model"):
        searcher_of(second, store)
    assert publish(second, store, quiet) != table
    same_as_brute(searcher_of(second, store), second)
    same_as_brute(asked, first)  # it keeps the vectors of its model
    with pytest.raises(InputError, match="another model"):
        searcher_of(first, store)
    assert roll_back(store) == table == store.live()
    same_as_brute(searcher_of(first, store), first)
    with pytest.raises(InputError, match="no release before"):
        roll_back(store)


def test_documents_come_and_go_at_once_and_outlive_a_release(
    address: str, releases: list[Release], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = releases
    store = open_store(address)
    publish(first, store, quiet)
    asked = searcher_of(first, store)
    gone = asked.search(QUESTION, 1)[0].passage_id
    asked.add([NEW, NEW | {"passage_id": gone}])
    vector = first.encode_passages(["blue tree the red bird one sings"])[0]
    query = first.encode(first.tokenize([QUESTION], "query"), "query")[0]
    hit = next(hit for hit in asked.search(QUESTION, 30) if hit.passage_id == "new/1")
    assert hit.score == pytest.approx(float(vector @ query), abs=1e-4) and hit.fields == NEW["fields"]
    asked.delete([gone, "unknown"])
    assert {hit.passage_id for hit in asked.search(QUESTION, 30)} == ({*brute(first, QUESTION)[0]} - {gone}) | {"new/1"}
    publish(second, store, quiet)
    found = searcher_of(second, store).search(QUESTION, 30)
    assert {hit.passage_id for hit in found} == ({*brute(second, QUESTION)[0]} - {gone}) | {"new/1"}
    score = (
        second.encode_passages(["blue tree the red bird one sings"])[0]
        @ second.encode(second.tokenize([QUESTION], "query"), "query")[0]
    )
    assert next(hit.score for hit in found if hit.passage_id == "new/1") == pytest.approx(float(score), abs=1e-4)
    asked.add([NEW | {"passage_id": "late"}])  # by a service that still has the old model
    assert "late" in {hit.passage_id for hit in asked.search(QUESTION, 30)}
    assert "late" in {hit.passage_id for hit in searcher_of(second, store).search(QUESTION, 30)}
    roll_back(store)
    publish(second, store, quiet, forget_changes=True)
    assert not store.notes("document")
    same_as_brute(searcher_of(second, store), second)  # also the passage that was deleted

    publish(first, store, quiet)
    asked.add([NEW])
    publish(second, store, quiet)
    store.drop(table_of(first, store.name))  # as people remove old tables
    with monkeypatch.context() as patch, pytest.raises(InterruptedError):
        patch.setattr(store, "finish", _interrupted)
        publish(first, store, quiet)
    assert table_of(first, store.name) not in store.notes("release"), "it is not whole"
    publish(first, store, quiet)
    found = searcher_of(first, store).search(QUESTION, 30)
    assert {hit.passage_id for hit in found} == {*brute(first, QUESTION)[0]} | {"new/1"}


def _interrupted(table: str) -> None:
    raise InterruptedError


def test_a_service_asks_in_the_store(address: str, two_releases: list[Path], releases: list[Release]) -> None:
    store = open_store(address)
    publish(releases[0], store, quiet)

    with running(two_releases[0], opener=partial(serve.open_release, store=store), token="secret") as service:
        service.client.headers["Authorization"] = "Bearer secret"
        [answer] = service.search(query=QUESTION, top=24, documents=False)["answers"]
        ids, scores = brute(releases[0], QUESTION)
        np.testing.assert_allclose([hit["score"] for hit in answer["hits"]], scores, atol=1e-4)
        articles = {
            row["passage_id"]: row["article_id"]
            for row in releases[0].passages.at(range(24), "passage_id", "article_id")
        }
        expected = list(dict.fromkeys(articles[key] for key in ids))
        [answer] = service.search(query=QUESTION, top=8, documents=True)["answers"]
        assert sorted(hit["document_id"] for hit in answer["hits"]) == sorted(expected)
        about = service.client.get("/info").json()
        assert about["store"]["table"] == store.live()
        refused = service.client.post("/search", json={"query": QUESTION, "filter": {"fields": {"product": "vpn"}}})
        assert refused.status_code == 422 and "has no filters" in refused.text
        for bad in ({"title": "\ud800"}, {"passage_id": "  "}):
            body = {"content": json.dumps({"documents": [NEW | bad]}), "headers": {"Content-Type": "application/json"}}
            assert service.client.post("/documents", **body).status_code == 422
        assert not store.notes("document")
        assert service.client.post("/documents", json={"documents": [NEW]}).json() == {"added": 1}
        [answer] = service.search(query=QUESTION, top=30, documents=False)["answers"]
        assert next(hit for hit in answer["hits"] if hit["passage_id"] == "new/1")["fields"] == NEW["fields"]
        service.client.request("DELETE", "/documents", json={"passage_ids": ["new/1"]})
        [answer] = service.search(query=QUESTION, top=30, documents=False)["answers"]
        assert "new/1" not in {hit["passage_id"] for hit in answer["hits"]}
    with running(two_releases[0]) as plain:
        assert plain.client.post("/documents", json={"documents": [NEW]}).status_code == 404


def test_a_large_table_gets_an_index_in_lancedb(
    releases: list[Release], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stillhouse.serving.stores import lance

    monkeypatch.setattr(lance, "INDEXED_FROM", 20)
    store = open_store(f"lancedb:{tmp_path}")
    publish(releases[0], store, quiet)
    same_as_brute(searcher_of(releases[0], store), releases[0])


def test_damaged_content_is_not_put_into_use(
    address: str, releases: list[Release], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(address)
    old = publish(releases[0], store, quiet)
    put = type(store).put

    def damaging(self: Store, table: str, rows: list[dict[str, str]], vectors: np.ndarray, fresh: bool = False) -> None:
        put(self, table, rows, vectors + np.float32(1e-3), fresh)

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "put", damaging)
        with pytest.raises(InputError, match="does not hold what was written"):
            publish(releases[1], store, quiet)
    assert store.live() == old
    publish(releases[1], store, quiet)
    same_as_brute(searcher_of(releases[1], store), releases[1])


def test_an_interrupted_publish_goes_on(address: str, releases: list[Release], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "BATCH", 5)
    store = open_store(address)
    old = publish(releases[0], store, quiet)
    put, written = type(store).put, []

    def failing(self: Store, table: str, rows: list[dict[str, str]], vectors: np.ndarray, fresh: bool = False) -> None:
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(rows)
        put(self, table, rows, vectors, fresh)

    with monkeypatch.context() as patch:
        patch.setattr(type(store), "put", failing)
        with pytest.raises(KeyboardInterrupt):
            publish(releases[1], store, quiet)
    assert store.live() == old
    later: list[int] = []

    def counting(self: Store, table: str, rows: list[dict[str, str]], vectors: np.ndarray, fresh: bool = False) -> None:
        later.append(len(rows))
        put(self, table, rows, vectors, fresh)

    monkeypatch.setattr(type(store), "put", counting)
    publish(releases[1], store, quiet)
    assert later == [5, 4], "15 of 24 passages were there"
    same_as_brute(searcher_of(releases[1], store), releases[1])


def test_a_lost_connection_is_opened_again(
    server: str, releases: list[Release], monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    store = open_store(f"{server}#lost")
    publish(releases[0], store, quiet)
    asked = searcher_of(releases[0], store)
    with psycopg.connect(server) as connection:
        others = "pid <> pg_backend_pid() AND backend_type = 'client backend'"
        connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")  # noqa: S608
    with pytest.raises(InputError, match="check the address, and that the store runs"):
        asked.search(QUESTION)
    same_as_brute(asked, releases[0])
