"""Documents are found from the next request on, survive kills, and never mix two models."""

from __future__ import annotations

import errno
import gc
import json
import os
import signal
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from serving_releases import Running, running
from test_swapped_releases import point, start

from stillhouse import cli
from stillhouse.errors import InputError
from stillhouse.retrieval.models.encoder import BiEncoder
from stillhouse.retrieval.search.bm25 import BM25
from stillhouse.serving.document_log import BEGIN, FILE, DocumentLog, packed
from stillhouse.serving.live_documents import LiveDocuments
from stillhouse.serving.live_index import LiveBM25
from stillhouse.serving.release import Release
from stillhouse.serving.settings import Limits

NEW = {"id": "new/1", "title": "two fish", "text": "the blue fish swims of and one"}
QUERY = "two fish the blue fish swims of and one"


@contextmanager
def taking(folder: Path, log: Path, limits: Limits | None = None, **settings: Any) -> Iterator[Running]:
    live = LiveDocuments(log, limits or Limits())
    try:
        with running(folder, limits, live=live, **settings) as service:
            yield service
    finally:
        live.close()


def found(service: Running, query: str = QUERY, **how: Any) -> dict[str, float]:
    [answer] = service.search(query=query, top=30, **how)["answers"]
    return {hit["passage_id"]: hit["score"] for hit in answer["hits"]}


def post(service: Running, *documents: Any) -> httpx2.Response:
    return service.client.post("/documents", json=list(documents) if len(documents) > 1 else documents[0])


def test_documents_are_added_replaced_and_deleted(two_releases: list[Path], tmp_path: Path) -> None:
    with taking(two_releases[0], tmp_path / "log") as service:
        before = found(service)
        assert "x/p0" in before and "new/1" not in before
        assert post(service, NEW).json()["documents"] == 1
        after = found(service)
        assert set(after) == {*before, "new/1"} and next(iter(after)) == "new/1"
        assert set(found(service, bm25=0)) == set(after)
        assert "new/1" in found(service, query="swims", bm25=1)
        assert set(found(service, filter={"id_prefix": "new/"})) == {"new/1"}
        [answer] = service.search(query=QUERY, top=1)["answers"]
        assert (answer["hits"][0]["title"], answer["hits"][0]["text"]) == (NEW["title"], NEW["text"])
        # A document with an id of the corpus hides that passage, whose words are no longer found.
        assert post(service, {"id": "x/p0", "text": "swims"}, {"id": "a/../b?", "text": "tree"}).status_code == 200
        assert found(service, query="swims", bm25=1).keys() >= {"x/p0", "new/1"}
        assert len(found(service)) == 26
        # Ids with slashes can be deleted by path and by body.
        assert service.client.delete("/documents/new/1").status_code == 200
        several = service.client.request("DELETE", "/documents", json={"ids": ["a/../b?", "x/p0", "y/p1"]})
        assert several.status_code == 200 and several.json()["deleted"] == 4
        assert set(found(service)) == set(before) - {"x/p0", "y/p1"}
        assert set(found(service, filter={"id_prefix": "x/"})) == {id for id in before if id[0] == "x"} - {"x/p0"}
        assert service.client.delete("/documents/new/1").status_code == 404
        assert service.client.get("/info").json()["live"]["deleted"] == 4


def test_a_document_scores_as_a_passage_of_the_same_text(two_releases: list[Path], tmp_path: Path) -> None:
    """In both rankings: the passage tower makes the vector, and BM25 uses the corpus's word frequencies and lengths."""
    with taking(two_releases[0], tmp_path / "log") as service:
        [answer] = service.search(query="green bird one", top=30)["answers"]
        same = [
            {"id": f"copy of {hit['passage_id']}", "title": hit["title"], "text": hit["text"]} for hit in answer["hits"]
        ]
        assert post(service, *same).status_code == 200
        for share in (0.0, 0.4, 1.0):
            [answer] = service.search(query="green bird one", top=100, bm25=share)["answers"]
            scores = {hit["passage_id"]: hit["score"] for hit in answer["hits"]}
            copies = {id: score for id, score in scores.items() if id.startswith("copy of ")}
            assert copies and len(copies) * 2 == len(scores)
            for id, score in copies.items():
                np.testing.assert_allclose(score, scores[id.removeprefix("copy of ")], atol=1e-5)


def test_another_release_has_its_own_vectors_of_them(two_releases: list[Path], tmp_path: Path) -> None:
    link = tmp_path / "in-use"
    point(link, two_releases[0])
    with taking(link, tmp_path / "log") as service:
        post(service, NEW)
        for number in (1, 0, 1):
            point(link, two_releases[number])
            assert service.service.shelf.look()
            if number:  # while both are open
                post(service, NEW | {"id": f"later {service.service.shelf.swaps}"})
            encoder = BiEncoder.load(two_releases[number] / "retriever").eval()
            text = f"{NEW['title']} {NEW['text']}"
            query = encoder(*encoder.queries([QUERY]).batch([0], torch.device("cpu")), "query")[0].detach().numpy()
            passage = encoder(*encoder.passages([text]).batch([0], torch.device("cpu")), "passage")[0].detach().numpy()
            scores = found(service, bm25=0)
            for id in (id for id in scores if id.startswith(("new", "later"))):
                np.testing.assert_allclose(scores[id], query @ passage, atol=1e-5)
            assert scores.keys() >= {"new/1", "later 1"}


def test_what_was_acknowledged_is_there_after_a_kill(two_releases: list[Path], tmp_path: Path) -> None:
    log = tmp_path / "log"
    process, url = start(two_releases[0], tmp_path, more=["--documents", str(log)])
    with httpx2.Client(base_url=url, timeout=60, trust_env=False) as client:
        for number in range(5):
            assert client.post("/documents", json=NEW | {"id": f"n{number}"}).status_code == 200
        assert client.delete("/documents/n3").status_code == 200
    process.send_signal(signal.SIGKILL)
    process.communicate()
    with (log / FILE).open("ab") as file:
        file.write(b"\x10\x00\x00")  # a kill in the middle of a write leaves this
    with taking(two_releases[0], log) as service:
        assert service.service.live and service.service.live.torn == 3
        assert {id for id in found(service) if id[0] == "n"} == {"n0", "n1", "n2", "n4"}
        assert post(service, NEW).status_code == 200
    assert cli.main(["documents", "export", str(log), str(tmp_path / "out")]) == 0
    lines = [json.loads(line) for line in (tmp_path / "out" / "corpus.jsonl").read_text().splitlines()]
    assert [each["_id"] for each in lines] == ["n0", "n1", "n2", "n4", "new/1"] and lines[0]["text"] == NEW["text"]
    assert json.loads((tmp_path / "out" / "deleted.jsonl").read_text()) == {"_id": "n3"}
    (tmp_path / "mine").mkdir()
    assert cli.main(["documents", "export", str(log), str(tmp_path / "mine")]) == 2
    assert not any((tmp_path / "mine").iterdir())


def logged(folder: Path, count: int) -> bytes:
    log = DocumentLog(folder)
    for number in range(count):
        log.append(
            {"put": [{"passage_id": f"d{number}", "article_id": "", "title": "", "text": "x" * 50}], "delete": []}
        )
    log.close()
    return (folder / FILE).read_bytes()


def test_every_prefix_of_a_log_opens_and_every_flipped_byte_is_refused(tmp_path: Path) -> None:
    data = logged(tmp_path, 3)
    path, whole = tmp_path / FILE, 0
    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        log = DocumentLog(tmp_path)
        assert (
            len(log.records) >= whole
            and log.records == [json.loads(each) for each in contents(data)][: len(log.records)]
        )
        whole = len(log.records)
        log.append({"put": [], "delete": ["after"]})
        log.close()
        again = DocumentLog(tmp_path)
        assert len(again.records) == whole + 1 and not again.torn
        again.close()
    assert whole == 3
    for place in range(0, len(data), 3):
        path.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        damaged = path.read_bytes()
        with pytest.raises(InputError, match=r"damaged at byte|not a log of documents"):
            DocumentLog(tmp_path)
        assert path.read_bytes() == damaged


def contents(data: bytes) -> list[str]:
    """Return the JSON of a log's records, found by their braces alone."""
    text, found, decoder = data.decode("latin-1"), [], json.JSONDecoder()
    place = text.find('{"put"')
    while place >= 0:
        value, end = decoder.raw_decode(text, place)
        found.append(json.dumps(value))
        place = text.find('{"put"', end)
    return found


@pytest.mark.parametrize(("number", "status"), [(errno.ENOSPC, 507), (errno.EROFS, 503)])
def test_a_full_disk_changes_nothing(
    two_releases: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, status: int
) -> None:
    write = os.pwrite

    def some(file: int, data: bytes, place: int) -> int:
        if len(data) > 20:
            return write(file, data[:20], place)
        raise OSError(number, os.strerror(number))

    with taking(two_releases[0], tmp_path / "log") as service:
        post(service, NEW)
        before, data = found(service), (tmp_path / "log" / FILE).read_bytes()
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwrite", some)
            for answer in (post(service, NEW | {"id": "b"}), service.client.delete("/documents/new/1")):
                assert answer.status_code == status and "nothing was changed" in answer.json()["error"]["message"]
        assert found(service) == before and (tmp_path / "log" / FILE).read_bytes() == data
        assert post(service, NEW | {"id": "b"}).status_code == 200 and "b" in found(service)


def test_limits_tokens_and_services_without_documents(two_releases: list[Path], tmp_path: Path) -> None:
    with running(two_releases[0]) as service:
        for answer in (post(service, NEW), service.client.delete("/documents/x/p0")):
            assert answer.status_code == 404 and "--documents" in answer.json()["error"]["message"]
    limits = Limits(documents=2, documents_bytes=1500)
    with taking(two_releases[0], tmp_path / "log", limits, token="sesame") as service:
        assert post(service, NEW).status_code == 401
        service.client.headers["Authorization"] = "Bearer sesame"
        assert post(service, NEW, NEW).status_code == 422
        for bad in ({"id": "", "text": "a"}, {"id": "a", "text": " "}, {"id": "\ud800", "text": "a"}, {"id": "a"}):
            headers = {"Content-Type": "application/json"}
            assert service.client.post("/documents", content=json.dumps(bad), headers=headers).status_code == 422
        assert post(service, *({"id": id, "text": "tree"} for id in "abc")).status_code == 507
        assert service.client.get("/info").json()["live"]["documents"] == 0
        assert post(service, {"id": "a", "text": "tree"}, {"id": "b", "text": "tree"}).status_code == 200
        assert post(service, {"id": "a", "text": "tree " * 400}).status_code == 507
        with pytest.raises(InputError, match="in use by another service"):
            LiveDocuments(tmp_path / "log", limits)


def test_replaced_documents_do_not_stay_in_memory(two_releases: list[Path], tmp_path: Path) -> None:
    with taking(two_releases[0], tmp_path / "log") as service:
        views: list[weakref.ref[Release]] = []
        for number in range(4):
            assert post(service, NEW | {"text": f"tree {number}"}).status_code == 200
            live = service.service.shelf.current.live
            assert live
            views.append(weakref.ref(live))
        del live
        gc.collect()
        assert [view() is not None for view in views] == [False, False, False, True]


def test_many_documents_are_encoded_a_batch_at_a_time(
    two_releases: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This also holds at startup and for a new release: encoding all at once would take too much memory."""
    counts: list[int] = []
    encode = Release.encode

    def counting(release: Release, ids: Sequence[Sequence[int]], role: str) -> NDArray[np.float32]:
        counts.append(sum(map(len, ids)))
        return encode(release, ids, role)

    limits = Limits(batch_tokens=64)
    with taking(two_releases[0], tmp_path / "log", limits) as service:
        assert post(service, *(NEW | {"id": f"new/{number}"} for number in range(20))).status_code == 200
        before = found(service)
    monkeypatch.setattr(Release, "encode", counting)
    with taking(two_releases[0], tmp_path / "log", limits) as service:
        after = found(service)
    assert max(counts) <= 64 and after.keys() == before.keys()
    np.testing.assert_allclose([after[id] for id in before], list(before.values()), atol=1e-5)


def test_documents_that_ran_out_of_time_are_not_encoded_to_their_end(
    two_releases: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = Release.encode

    def slow(release: Release, ids: Any, role: str) -> Any:
        time.sleep(0.05)
        return encode(release, ids, role)

    with taking(two_releases[0], tmp_path / "log", Limits(batch_tokens=16, deadline=1.5)) as service:
        monkeypatch.setattr(Release, "encode", slow)
        assert post(service, *(NEW | {"id": f"new/{number}"} for number in range(200))).status_code == 504
        assert service.client.post("/search", json={"query": "tree"}).status_code == 200
        assert post(service, NEW).status_code == 200


def test_long_questions_are_ranked_soon_beside_many_documents() -> None:
    words = [f"w{number}" for number in range(1000)]
    bm25 = BM25.of([" ".join(words[begin : begin + 20]) for begin in range(0, 1000, 20)], 0.9, 0.4)
    documents = [f"{words[number % 1000]} {words[number * 7 % 1000]} tree" for number in range(10_000)]
    live = LiveBM25(bm25, np.empty(0, np.int32), documents, 20.0)
    began = time.monotonic()
    rows_QK, _ = live.search([" ".join(words)] * 8, 100)
    assert time.monotonic() - began < 5 and (rows_QK >= 0).all()


def test_a_log_of_many_small_records_opens_soon(tmp_path: Path) -> None:
    record = packed({"put": [], "delete": ["an id that was deleted, and added again"]})
    (tmp_path / FILE).write_bytes(BEGIN + record * 100_000)
    began = time.monotonic()
    log = DocumentLog(tmp_path)
    log.close()
    assert len(log.records) == 100_000
    assert time.monotonic() - began < 30
