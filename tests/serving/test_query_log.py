"""Queries are logged on request, and feedback on them becomes train queries."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pyarrow.parquet as pq
import pytest
from beir_source import write_beir
from serving_releases import BROWSER, Running, running
from test_swapped_releases import start

from stillhouse import cli
from stillhouse.corpus.store import Corpus
from stillhouse.serving.query_log import FEEDBACK, QUERIES, QueryLog, clear_old, read_log

QUERY = "where does the red bird one sing"


@contextmanager
def logging(folder: Path, log: Path, **how: Any) -> Iterator[Running]:
    with running(folder, queries=QueryLog(log, 30), **how) as service:
        yield service


def ask(service: Running, query: str = QUERY) -> dict[str, Any]:
    [answer] = service.search(query=query, top=12)["answers"]
    return dict(answer)


def give(service: Running, query_id: str, passage_id: str, kind: str = "click", **how: Any) -> httpx2.Response:
    body = json.dumps({"query_id": query_id, "passage_id": passage_id, "kind": kind})
    return service.client.post("/feedback", content=body, headers={"Content-Type": "application/json"}, **how)


def test_a_log_holds_what_was_asked_and_found(two_releases: list[Path], tmp_path: Path) -> None:
    with logging(two_releases[0], tmp_path) as service:
        answer = ask(service)
        both = service.search(queries=["green fish", "which tree"], texts=False)
        assert service.client.post("/", data={"query": "by hand"}, headers=BROWSER).status_code == 200
        assert service.client.get("/info").json()["queries"] == {"retention_days": 30}
    rows = {row["query"]: row for row in read_log(tmp_path, QUERIES)}
    assert list(rows) == [QUERY, "green fish", "which tree", "by hand"]
    row = rows[QUERY]
    assert row["query_id"] == answer["query_id"] and row["release"] == both["release"]
    assert row["passage_ids"] == [hit["passage_id"] for hit in answer["hits"][:10]]
    assert row["scores"] == pytest.approx([hit["score"] for hit in answer["hits"][:10]])
    assert abs(datetime.fromisoformat(row["asked_at"]) - datetime.now(UTC)) < timedelta(minutes=5)
    assert all(rows[each["query"]]["query_id"] == each["query_id"] for each in both["answers"])
    [path] = (tmp_path / QUERIES).iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and "127.0.0.1" not in path.read_text()


def test_without_a_log_nothing_is_kept_and_there_is_no_feedback(served: Running) -> None:
    answer = ask(served)
    assert "query_id" not in answer
    assert give(served, "x", "x/p0").status_code == 404


def test_feedback_is_of_what_was_shown(two_releases: list[Path], tmp_path: Path) -> None:
    with logging(two_releases[0], tmp_path) as service:
        answer = ask(service)
        id, hits = answer["query_id"], [hit["passage_id"] for hit in answer["hits"]]
        assert give(service, id, hits[0]).json() == {"query_id": id, "taken": True}
        [first] = read_log(tmp_path, FEEDBACK)
        assert (first["query"], first["passage_id"], first["kind"]) == (QUERY, hits[0], "click")
        assert give(service, id, hits[9], "not_relevant").status_code == 200
        assert give(service, id, hits[10]).status_code == 404  # the eleventh
        assert give(service, "0" * 24, hits[0]).status_code == 404
        assert give(service, id, hits[0], "loved").status_code == 422
        assert give(service, "9" * 65, hits[0]).status_code == 422
        assert give(service, "\ud800", hits[0]).status_code == 422
        assert give(service, "a\n\r\x1b[2J", hits[0]).status_code == 404
        assert service.client.post("/feedback", content=b"{" * 100).status_code == 415
        assert service.client.post("/feedback", json={"query_id": id}).status_code == 422
        assert len(list(read_log(tmp_path, FEEDBACK))) == 2


def test_old_files_are_deleted_and_other_files_stay(tmp_path: Path) -> None:
    QueryLog(tmp_path, 30)
    for kind in (QUERIES, FEEDBACK):
        (tmp_path / kind / "20200101.jsonl").write_text("mine")
    QueryLog(tmp_path, 30)
    for kind in (QUERIES, FEEDBACK):
        assert not list((tmp_path / kind).iterdir())
        for name in ("20260228.jsonl", "20260310.jsonl", "20260331.jsonl", "notes.txt"):
            (tmp_path / kind / name).write_text("mine")
    clear_old(tmp_path, 30, datetime(2026, 3, 31, 12, tzinfo=UTC))
    for kind in (QUERIES, FEEDBACK):
        assert {path.name for path in (tmp_path / kind).iterdir()} == {"20260310.jsonl", "20260331.jsonl", "notes.txt"}


def test_a_full_disk_stops_no_search_and_refuses_feedback(
    two_releases: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with logging(two_releases[0], tmp_path) as service:
        answer = ask(service)
        hit = answer["hits"][0]["passage_id"]
        with monkeypatch.context() as patched:
            patched.setattr(QueryLog, "_append", full)
            assert give(service, answer["query_id"], hit).status_code == 507
            assert ask(service, "another")["hits"]
        assert give(service, answer["query_id"], hit, "relevant").status_code == 200
    assert [row["kind"] for row in read_log(tmp_path, FEEDBACK)] == ["relevant"]


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    log = QueryLog(tmp_path, 30)
    log.note("v1", "one", [])
    [path] = (tmp_path / QUERIES).iterdir()
    path.write_bytes(path.read_bytes() + b'{"query_id": "cut')
    assert [row["query"] for row in read_log(tmp_path, QUERIES)] == ["one"]


def test_a_line_that_a_kill_cut_off_spoils_no_other(tmp_path: Path) -> None:
    QueryLog(tmp_path, 30).note("v1", "one", [])
    [path] = (tmp_path / QUERIES).iterdir()
    path.write_bytes(path.read_bytes() + b'{"query_id": "cut')
    log = QueryLog(tmp_path, 30)
    log.note("v1", "two", [])
    log.note("v1", "three", [])
    assert [row["query"] for row in read_log(tmp_path, QUERIES)] == ["one", "two", "three"]


def test_a_line_that_fits_the_disk_in_part_is_taken_back(tmp_path: Path) -> None:
    said: list[str] = []
    log = QueryLog(tmp_path, 30, said.append)
    log.note("v1", "one", [])
    [path] = (tmp_path / QUERIES).iterdir()
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, limits[1]))
    try:
        log.note("v1", "two", [])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before and "cannot be written" in said[0]


def test_clicks_survive_a_kill_and_train_the_next_release(two_releases: list[Path], tmp_path: Path) -> None:
    """A service process gets queries and feedback and is killed. Its log is exported and ingested with the corpus."""
    log, token = tmp_path / "log", "sesame"
    more = ["--log-queries", str(log)]
    process, url = start(two_releases[0], tmp_path / "work", more, STILLHOUSE_SERVE_TOKEN=token)
    dev = Corpus.open(two_releases[0] / "corpus").queries_of("dev")["text"].iloc[0]
    try:
        with httpx2.Client(base_url=url, timeout=60, trust_env=False) as client:
            client.headers["Authorization"] = f"Bearer {token}"
            for user in ("ann", "bob", "cat", "dan"):
                for query in ("who sings in trees", dev, f"only {user} asks this"):
                    [answer] = client.post("/search", json={"query": query}).json()["answers"]
                    shown = answer["hits"][2]["passage_id"]
                    body = {"query_id": answer["query_id"], "passage_id": shown, "kind": "relevant"}
                    assert client.post("/feedback", json=body).status_code == 200
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    clicked = {each["query"]: each["passage_id"] for each in read_log(log, FEEDBACK)}
    out = tmp_path / "clicked"
    assert cli.main(["queries", "export", str(log), str(out)]) == 0
    facts = json.loads((out / "export.json").read_text())
    assert facts["queries"] == 2 and facts["rejected"] == {"a pair that too few votes are for": 4}
    again = ["queries", "export", str(log), str(out)]
    assert cli.main(again) == 2  # it overwrites nothing
    corpus = Corpus.open(two_releases[0] / "corpus")
    rows = corpus.passages.itertuples()
    passages = [{"_id": row.passage_id, "title": row.title, "text": row.text} for row in rows]
    queries = {row.query_id: row.text for row in corpus.queries.itertuples()}
    tables = {split: corpus.qrels_of(split) for split in ("train", "dev", "test")}
    judged = {split: zip(table["query_id"], table["passage_id"]) for split, table in tables.items()}
    source = write_beir(tmp_path / "source", passages, queries, **judged)
    made = tmp_path / "corpus"
    command = ["ingest", "--source", str(source), "--train-queries", str(out), "--corpus", str(made)]
    assert cli.main([*command, "--work", str(tmp_path / "work")]) == 0
    new = Corpus.open(made).queries
    assert list(new[new["origin"] == "added"]["text"]) == ["who sings in trees"]
    [id] = new[new["origin"] == "added"]["query_id"]
    qrels = Corpus.open(made).qrels_of("train")
    assert list(qrels[qrels["query_id"] == id]["passage_id"]) == [clicked["who sings in trees"]]
    assert dev in set(new[new["split"] == "dev"]["text"]) and dev not in set(new[new["split"] == "train"]["text"])


def test_judged_queries_of_a_log_are_a_table_of_a_source(two_releases: list[Path], tmp_path: Path) -> None:
    """The folder of a log, is read as it is; judgements use the log's ids."""
    source = tmp_path / "source"
    source.mkdir()
    passages = shutil.copy(two_releases[0] / "corpus" / "passages.parquet", source)
    last = pq.read_table(passages)["passage_id"].to_pylist()[-1]
    judged = {"which fish is green": "test", 'who sings, in "trees"': "test", "où est l'oiseau": "train"}
    with logging(two_releases[0], tmp_path / "log") as service:
        ids = {query: ask(service, query)["query_id"] for query in (*judged, "nobody judged this")}
        hit = service.search(query="one more")["answers"][0]
        assert give(service, hit["query_id"], hit["hits"][0]["passage_id"]).status_code == 200
    (tmp_path / "log" / QUERIES).rename(source / "queries")
    for split in ("train", "test"):
        rows = [f"{ids[query]},{last},1" for query, own in judged.items() if own == split]
        (source / f"qrels.{split}.csv").write_text("\n".join(["query_id,passage_id,relevance", *rows]) + "\n")
    command = ["ingest", "--source", str(source), "--dev-fraction", "0", "--corpus", str(tmp_path / "corpus")]
    assert cli.main([*command, "--work", str(tmp_path / "work")]) == 0
    corpus = Corpus.open(tmp_path / "corpus")
    found = {row.text: (row.query_id, row.split) for row in corpus.queries.itertuples()}
    assert found == {query: (ids[query], split) for query, split in judged.items()}
    assert set(corpus.qrels["passage_id"]) == {last}
    assert set(corpus.unjudged["query_id"]) == {ids["nobody judged this"], hit["query_id"]}
    assert corpus.rejected.empty


def test_all_questions_of_a_log_are_exported(tmp_path: Path) -> None:
    queries = QueryLog(tmp_path / "log", 30)
    for query in ("a", "A ", "A ", "b", "b", "c"):
        queries.note("v1", query, [])
    command = ["queries", "export", str(tmp_path / "log"), "--all"]

    def exported(name: str, *words: str) -> set[str]:
        out = tmp_path / name
        assert cli.main([*command, str(out), *words]) == 0
        assert not (out / "qrels").exists()
        return {json.loads(line)["text"] for line in (out / "queries.jsonl").read_text().splitlines()}

    assert exported("all") == {"A ", "b", "c"}
    assert exported("several", "--least-votes", "2") == {"A ", "b"}
