"""Queries are logged on request, completely and within limits, and feedback on them becomes train queries."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pyarrow.parquet as pq
import pytest
from serving_releases import BROWSER, Running, running
from test_swapped_releases import start, until

from stillhouse import cli
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus
from stillhouse.serving import feedback_log
from stillhouse.serving.client_ids import KEY_FILE, client_id, client_of, read_key
from stillhouse.serving.feedback_log import read_feedback
from stillhouse.serving.query_log import LogChoices, QueryLog, clear_old, named

QUERY = "where does the red bird one sing"


@contextmanager
def logging(folder: Path, log: Path, **how: Any) -> Iterator[Running]:
    choices = {name: how.pop(name) for name in ("sample", "days", "rows", "seconds") if name in how}
    queries = QueryLog(log, LogChoices(**choices))
    try:
        with running(folder, queries=queries, client_key=read_key(log, ""), **how) as service:
            yield service
    finally:
        queries.end()


def rows_of(log: Path) -> list[dict[str, Any]]:
    return [row for path in named(log, ".parquet") for row in pq.read_table(path).to_pylist()]


def ask(service: Running, query: str = QUERY) -> dict[str, Any]:
    [answer] = service.search(query=query, top=12)["answers"]
    return dict(answer)


def give(service: Running, query_id: str, passage_id: str, kind: str = "click", **how: Any) -> httpx2.Response:
    body = json.dumps({"query_id": query_id, "passage_id": passage_id, "kind": kind})
    headers = {"Content-Type": "application/json"} | how.pop("headers", {})
    return service.client.post("/feedback", content=body, headers=headers, **how)


def test_a_log_holds_what_was_asked_and_found(two_releases: list[Path], tmp_path: Path) -> None:
    log = tmp_path / "log"
    with logging(two_releases[0], log) as service:
        answer = ask(service)
        both = service.search(queries=["green fish", "which tree"], texts=False)
        assert service.client.post("/", data={"query": "by hand"}, headers=BROWSER).status_code == 200
        assert rows_of(log) == [] and service.client.get("/info").json()["queries"]["waiting"] == 4
    rows = {row["query"]: row for row in rows_of(log)}
    assert set(rows) == {QUERY, "green fish", "which tree", "by hand"}
    row = rows[QUERY]
    assert row["query_id"] == answer["query_id"] and row["release"] == both["release"]
    assert row["passage_ids"] == [hit["passage_id"] for hit in answer["hits"][:10]]
    assert row["scores"] == pytest.approx([hit["score"] for hit in answer["hits"][:10]])
    assert abs(row["asked_at"] - datetime.now(UTC)) < timedelta(minutes=5)
    assert len({row["client"] for row in rows.values()}) == 1 and "127" not in row["client"]
    assert all(rows[each["query"]]["query_id"] == each["query_id"] for each in both["answers"])
    assert stat.S_IMODE(next(log.glob("*.parquet")).stat().st_mode) == 0o600


def test_without_a_log_nothing_is_kept_and_there_is_no_feedback(served: Running) -> None:
    answer = ask(served)
    assert "query_id" not in answer
    assert give(served, "x", "x/p0").status_code == 404


def test_a_file_is_written_once_there_are_rows_enough(two_releases: list[Path], tmp_path: Path) -> None:
    with logging(two_releases[0], tmp_path, rows=3) as service:
        for number in range(7):
            ask(service, f"bird {number}")
            until_rows(tmp_path, (number + 1) // 3 * 3)
    assert [row["query"] for row in rows_of(tmp_path)] == [f"bird {number}" for number in range(7)]


def until_rows(log: Path, count: int) -> None:
    for _ in range(500):
        if len(rows_of(log)) >= count:
            return
        threading.Event().wait(0.02)
    raise AssertionError(f"{len(rows_of(log))} rows")


def test_a_sample_has_the_requested_share(tmp_path: Path) -> None:
    log = QueryLog(tmp_path, LogChoices(sample=0.1))
    ids = [log.note("r", "c", f"query {number}", [("p", 1.0)]) for number in range(4000)]
    log.end()
    kept = [id for id in ids if id]
    assert 300 < len(kept) < 500  # five standard deviations
    assert [row["query_id"] for row in rows_of(tmp_path)] == kept


def test_feedback_is_of_what_was_shown_and_on_the_disk(two_releases: list[Path], tmp_path: Path) -> None:
    with logging(two_releases[0], tmp_path) as service:
        answer = ask(service)
        id, hits = answer["query_id"], [hit["passage_id"] for hit in answer["hits"]]
        assert give(service, id, hits[0]).json() == {"query_id": id, "taken": True}
        [first] = read_feedback(tmp_path)
        assert (first.query, first.passage_id, first.kind) == (QUERY, hits[0], "click")
        assert give(service, id, hits[9], "not_relevant").status_code == 200
        assert give(service, id, hits[10]).status_code == 404  # the eleventh
        assert give(service, "0" * 24, hits[0]).status_code == 404
        assert give(service, id, hits[0], "loved").status_code == 422
        assert give(service, "9" * 65, hits[0]).status_code == 422
        assert give(service, "\ud800", hits[0]).status_code == 422
        assert give(service, "a\n\r\x1b[2J", hits[0]).status_code == 404
        assert service.client.post("/feedback", content=b"{" * 100).status_code == 415
        assert service.client.post("/feedback", json={"query_id": id}).status_code == 422
        assert len(list(read_feedback(tmp_path))) == 2


def test_a_token_is_wanted_for_feedback_and_lets_a_program_name_its_users(
    two_releases: list[Path], tmp_path: Path
) -> None:
    with logging(two_releases[0], tmp_path, token="sesame") as service:
        assert give(service, "x", "x/p0").status_code == 401
        service.client.headers["Authorization"] = "Bearer sesame"
        answer = ask(service)
        for user in ("ann", "bob", "ann"):
            hit = answer["hits"][0]["passage_id"]
            assert give(service, answer["query_id"], hit, headers={"X-Stillhouse-Client": user}).status_code == 200
    clients = [each.client for each in read_feedback(tmp_path)]
    assert clients[0] == clients[2] != clients[1] and "ann" not in clients[0]


def test_one_client_has_one_id_by_one_key(tmp_path: Path) -> None:
    class Asking:
        def __init__(self, host: str, **headers: str) -> None:
            self.client, self.headers = type("Address", (), {"host": host}), headers

    key = read_key(tmp_path, "")
    assert key == read_key(tmp_path, "") and len(key) == 64
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600
    assert read_key(tmp_path, "given") == b"given"
    header = {"X-Stillhouse-Client": "eve"}
    of = {
        name: client_of(Asking(host, **headers), trusted)  # type: ignore[arg-type]
        for name, host, headers, trusted in (
            ("one", "192.0.2.1", {}, False),
            ("other", "192.0.2.2", {}, False),
            ("untrusted", "192.0.2.1", header, False),
            ("trusted", "192.0.2.1", header, True),
            ("house", "2001:db8:1:2::1", {}, False),
            ("same house", "2001:db8:1:2:ffff::9", {}, False),
            ("next house", "2001:db8:1:3::1", {}, False),
        )
    }
    ids = {name: client_id(client, key) for name, client in of.items()}
    assert ids["one"] == ids["untrusted"] and ids["house"] == ids["same house"]
    assert len(set(ids.values())) == 5
    assert ids["one"] != client_id(of["one"], b"another key")


def test_old_and_large_logs_are_deleted_and_other_files_stay(tmp_path: Path) -> None:
    now = datetime(2026, 3, 31, 12, tzinfo=UTC)
    log = QueryLog(tmp_path, LogChoices(rows=1, days=36_500))
    for number in range(4):
        log.note("r", "c", f"query {number}", [("p", 1.0)])
        until_rows(tmp_path, number + 1)
    log.end()
    days = ("20260101", "20260310", "20260320", "20260331")
    for path, day in zip(named(tmp_path, ".parquet"), days):
        path.rename(tmp_path / f"queries-{day}T120000000000-0000000{day[-1]}.parquet")
    for name in ("queries.parquet", "feedback.jsonl", "notes.txt"):
        (tmp_path / name).write_text("mine")
    assert [path.name[8:16] for path in clear_old(tmp_path, 30, 1 << 30, now)] == ["20260101"]
    left = named(tmp_path, ".parquet")
    size = left[0].stat().st_size
    assert clear_old(tmp_path, 1e4, 2 * size + size // 2, now) == left[:1]
    assert clear_old(tmp_path, 1e4, 0, now) == left[1:2]  # the newest stays
    assert all((tmp_path / name).exists() for name in ("queries.parquet", "feedback.jsonl", "notes.txt"))


def test_one_service_uses_a_log(tmp_path: Path) -> None:
    log = QueryLog(tmp_path, LogChoices())
    with pytest.raises(InputError, match="choose another folder"):
        QueryLog(tmp_path, LogChoices())
    log.end()
    QueryLog(tmp_path, LogChoices()).end()


def test_a_full_disk_makes_nobody_wait_and_loses_nothing_that_was_taken(
    two_releases: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with logging(two_releases[0], tmp_path, rows=2, seconds=0.05) as service:
        answer = ask(service)
        hit = answer["hits"][0]["passage_id"]
        assert give(service, answer["query_id"], hit).status_code == 200
        until_rows(tmp_path, 1)
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            assert give(service, answer["query_id"], hit).status_code == 507
            for number in range(9):
                ask(service, f"bird {number}")
            until(lambda: service.service.queries and service.service.queries.counts["dropped"] == 9)
        assert give(service, answer["query_id"], hit, "relevant").status_code == 200
        ask(service, "once there is room")
        until_rows(tmp_path, 2)
        assert service.client.get("/info").json()["queries"]["dropped"] == 9
    assert [each.kind for each in read_feedback(tmp_path)] == ["click", "relevant"]


def test_feedback_is_bounded_and_a_truncated_line_is_dropped(
    two_releases: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feedback_log, "MOST_BYTES", 700)
    with logging(two_releases[0], tmp_path) as service:
        answer = ask(service)
        hit = answer["hits"][0]["passage_id"]
        statuses = [give(service, answer["query_id"], hit).status_code for _ in range(5)]
        assert statuses[0] == 200 and statuses[-1] == 507
        count = statuses.count(200)
    [path] = tmp_path.glob("feedback-*.jsonl")
    path.write_bytes(path.read_bytes() + b'{"query_id": "cut')
    assert len(list(read_feedback(tmp_path))) == count
    monkeypatch.undo()
    with logging(two_releases[0], tmp_path) as service:
        assert give(service, ask(service)["query_id"], hit).status_code == 200
    assert len(list(read_feedback(tmp_path))) == count + 1


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
                client.headers["X-Stillhouse-Client"] = user
                for query in ("who sings in trees", dev, f"only {user} asks this"):
                    [answer] = client.post("/search", json={"query": query}).json()["answers"]
                    shown = answer["hits"][2]["passage_id"]
                    body = {"query_id": answer["query_id"], "passage_id": shown, "kind": "relevant"}
                    assert client.post("/feedback", json=body).status_code == 200
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    clicked = {each.query: each.passage_id for each in read_feedback(log)}
    out = tmp_path / "clicked"
    assert cli.main(["queries", "export", str(log), str(out)]) == 0
    facts = json.loads((out / "export.json").read_text())
    assert facts["queries"] == 2 and facts["rejected"] == {"a pair that too few clients are for": 4}
    again = ["queries", "export", str(log), str(out)]
    assert cli.main(again) == 2  # it overwrites nothing
    source = tmp_path / "source"
    source.mkdir()
    corpus = Corpus.open(two_releases[0] / "corpus")
    lines = [
        json.dumps({"_id": row.passage_id, "title": row.title, "text": row.text})
        for row in corpus.passages.itertuples()
    ]
    (source / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    queries = [json.dumps({"_id": row.query_id, "text": row.text}) for row in corpus.queries.itertuples()]
    (source / "queries.jsonl").write_text("\n".join(queries) + "\n")
    (source / "qrels").mkdir()
    for split in ("train", "dev", "test"):
        table = corpus.qrels_of(split)
        pairs = [f"{query}\t{passage}\t1\n" for query, passage in zip(table["query_id"], table["passage_id"])]
        (source / "qrels" / f"{split}.tsv").write_text("".join(pairs))
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
    """The folder of a log, with its feedback, key and lock, is read as it is; judgements use the log's ids."""
    source = tmp_path / "source"
    source.mkdir()
    passages = shutil.copy(two_releases[0] / "corpus" / "passages.parquet", source)
    last = pq.read_table(passages)["passage_id"].to_pylist()[-1]
    judged = {"which fish is green": "test", 'who sings, in "trees"': "test", "où est l'oiseau": "train"}
    with logging(two_releases[0], tmp_path / "log", rows=3) as service:  # twice as many fit in memory
        ids = {query: ask(service, query)["query_id"] for query in (*judged, "nobody judged this")}
        hit = service.search(query="one more")["answers"][0]
        assert give(service, hit["query_id"], hit["hits"][0]["passage_id"]).status_code == 200
    assert len(named(tmp_path / "log", ".parquet")) > 1
    (tmp_path / "log").rename(source / "queries")
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
    queries = QueryLog(tmp_path / "log", LogChoices())
    for client, asked in {"ann": ["a", "A ", "b", "c"], "bob": ["b"], "cat": ["d"], "dan": ["d", "e"]}.items():
        for query in asked:
            queries.note("v1", client, query, [])
    queries.end()
    command = ["queries", "export", str(tmp_path / "log"), "--all"]

    def exported(name: str, *words: str) -> set[str]:
        out = tmp_path / name
        assert cli.main([*command, str(out), *words]) == 0
        assert not (out / "qrels").exists()
        return {json.loads(line)["text"] for line in (out / "queries.jsonl").read_text().splitlines()}

    # Of the questions that a client repeats, the last form counts.
    assert exported("all") == {"A ", "b", "c", "d", "e"}
    assert exported("several", "--least-clients", "2") == {"b", "d"}
