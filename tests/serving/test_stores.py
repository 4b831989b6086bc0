"""Each store against brute force over the vectors of a release, and what a publish leaves when it fails."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from postgres_server import PASSWORD, postgres_server
from serving_releases import open_release, running

from stillhouse.core.errors import InputError
from stillhouse.models.query_encoder import open_passage_encoder, open_query_encoder
from stillhouse.serving.release import Ranked, Release
from stillhouse.serving.source import FolderSource
from stillhouse.serving.stores import publish as publishing
from stillhouse.serving.stores.publish import publish, roll_back
from stillhouse.serving.stores.searcher import StoreSearcher
from stillhouse.serving.stores.store import Store, digest_of, open_store

QUESTION = "where does the red bird one sing"
NEW = {"passage_id": "new/1", "title": "blue tree", "text": "the red bird one sings", "fields": {"page": 7, "x": 1.0}}
Addresses = Callable[[str], str]


def quiet(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with postgres_server() as address:
        yield address


@pytest.fixture(params=["postgresql", "qdrant", "lancedb"])
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An address of each store, for releases of its own."""
    if request.param == "postgresql":
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
        return f"{request.getfixturevalue('server')}#r{os.urandom(4).hex()}"
    return f"{request.param}:{tmp_path / 'store'}"


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
    row = next(place for place in range(24) if first.passages.at([place], "passage_id")[0]["passage_id"] == best.passage_id)
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


def test_documents_come_and_go_at_once_and_outlive_a_release(address: str, releases: list[Release]) -> None:
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
    score = second.encode_passages(["blue tree the red bird one sings"])[0] @ second.encode(
        second.tokenize([QUESTION], "query"), "query"
    )[0]
    assert next(hit.score for hit in found if hit.passage_id == "new/1") == pytest.approx(float(score), abs=1e-4)
    asked.add([NEW | {"passage_id": "late"}])  # by a service that still has the old model
    assert "late" in {hit.passage_id for hit in asked.search(QUESTION, 30)}
    assert "late" in {hit.passage_id for hit in searcher_of(second, store).search(QUESTION, 30)}
    roll_back(store)
    publish(second, store, quiet, forget_changes=True)
    assert not store.notes("document")
