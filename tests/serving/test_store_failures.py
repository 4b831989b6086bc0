"""Publishing that is killed, that two processes do at once, or that a store refuses: the old release answers on."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from postgres_server import PASSWORD, postgres_server
from serving_releases import open_release
from test_stores import address, quiet, releases, same_as_brute, searcher_of, server

from stillhouse import cli
from stillhouse.core.errors import InputError
from stillhouse.serving.release import Release
from stillhouse.serving.source import FolderSource
from stillhouse.serving.stores import publish as publishing
from stillhouse.serving.stores.publish import publish
from stillhouse.serving.stores.searcher import RELEASE, StoreSearcher
from stillhouse.serving.stores.store import Store, open_store

__all__ = ["address", "releases", "server"]
FORK = multiprocessing.get_context("fork")


class Publisher:
    """A process that publishes a release two passages at a time, once it is told to."""

    def __init__(self, release: Release, address: str) -> None:
        self._pipe, self._waiting = FORK.Pipe()
        self.process = FORK.Process(target=self._work, args=(release, address))
        self.process.start()

    def _work(self, release: Release, address: str) -> None:
        self._waiting.recv()
        try:
            publish(release, open_store(address), quiet)
            self._waiting.send("")
        except BaseException as error:
            self._waiting.send(f"{type(error).__name__}: {error}")

    def go(self) -> None:
        self._pipe.send(1)

    def said(self) -> str:
        """What went wrong; "" for nothing."""
        assert self._pipe.poll(60), f"no answer, exit code {self.process.exitcode}"
        return str(self._pipe.recv())


@pytest.fixture
def computed(releases: list[Release], monkeypatch: pytest.MonkeyPatch) -> list[Release]:
    """The releases without PyTorch, which a forked process must not call: their results are computed before."""
    monkeypatch.setattr(publishing, "BATCH", 2)
    for release in releases:
        for name in ("tokenize", "encode", "rank"):
            monkeypatch.setattr(release, name, remembered(getattr(release, name)))
    return releases


def remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[str, Any] = {}

    def call(*arguments: Any) -> Any:
        key = repr(arguments[:2])
        if key not in known:
            known[key] = function(*arguments)
        return known[key]

    return call


@contextmanager
def asking_all_the_while(address: str, release: Release) -> Iterator[None]:
    """Asks the store without a pause, and compares each answer with brute force."""
    over, asked, wrong = threading.Event(), threading.Event(), list[BaseException]()

    def ask() -> None:
        try:
            searcher = searcher_of(release, open_store(address))
            while not over.is_set():
                same_as_brute(searcher, release)
                asked.set()
        except BaseException as error:
            wrong.append(error)
            asked.set()

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        asked.wait(60)
        yield
    finally:
        over.set()
        thread.join()
    assert not wrong


def forget(store: Store, table: str) -> None:
    """Removes a release that is not in use."""
    store.note(RELEASE, {table: None})
    store.drop(table)


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.long)])
def test_a_killed_publish_leaves_the_old_release(
    server: str, computed: list[Release], kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    address = f"{server}#killed{kills}"
    store = open_store(address)
    [old, new] = [publish(each, store, quiet) for each in computed]
    store.swap(old)
    forget(store, new)
    started, begin = Publisher(computed[1], address), time.monotonic()
    with asking_all_the_while(address, computed[0]):
        started.go()
        assert not started.said()
    seconds, seed = time.monotonic() - begin, random.SystemRandom().randrange(2**32)
    chance, landed, still_old = random.Random(seed), 0, 0
    for _ in range(20 * kills):
        store.swap(old)
        forget(store, new)
        started = Publisher(computed[1], address)
        with asking_all_the_while(address, computed[0]):
            started.go()
            time.sleep(chance.uniform(0, seconds))
            started.process.kill()
            started.process.join()
        landed += started.process.exitcode == -signal.SIGKILL
        still_old += store.live() == old
        live = computed[store.live() == new]
        same_as_brute(searcher_of(live, store), live)
        publish(computed[1], store, quiet)  # goes on where the killed one stopped
        same_as_brute(searcher_of(computed[1], store), computed[1])
        if landed == kills:
            break
    print(f"seed {seed}: {landed} kills within {seconds:.2f} s; after {still_old} the old release was in use")
    assert landed == kills


@pytest.mark.parametrize("same", [True, False])
def test_of_two_publishers_one_release_is_whole(
    server: str, computed: list[Release], same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    for release in computed:  # elsewhere, so that all is computed
        publish(release, open_store(f"{server}#elsewhere{same:d}"), quiet)
    address = f"{server}#both{same:d}"
    started = [Publisher(computed[number], address) for number in ((0, 0) if same else (0, 1))]
    for each in started:
        each.go()
    said = [each.said() for each in started]
    assert "" in said if same else said == ["", ""]
    assert all(not text or "another process is writing" in text for text in said), said
    store = open_store(address)
    monkeypatch.setattr(type(store), "put", pytest.fail)
    for release in computed[: 1 if same else 2]:
        assert publish(release, store, quiet) == store.live()  # it is there, and whole
        same_as_brute(searcher_of(release, store), release)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """Mounts a file system of a size in memory."""
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder]).returncode:
        pytest.skip("only root may mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(ballast: Path) -> None:
    with pytest.raises(OSError, match="No space"), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))


def published_on_a_full_disk(address: str, ballast: Path, releases: list[Release]) -> None:
    store = open_store(address)
    old = publish(releases[0], store, quiet)
    fill(ballast)
    with pytest.raises(InputError, match="disk is full: free some space"):
        publish(releases[1], store, quiet)
    assert store.live() == old
    same_as_brute(searcher_of(releases[0], store), releases[0])
    ballast.unlink()
    publish(releases[1], store, quiet)
    same_as_brute(searcher_of(releases[1], store), releases[1])


def test_a_full_disk_of_postgresql_leaves_the_old_release(
    releases: list[Release], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    folder = Path(f"/tmp/stillhouse-disk-{os.getpid()}")
    folder.mkdir()
    try:
        with small_disk(folder, "160m"), postgres_server(folder) as address:
            published_on_a_full_disk(address, folder / "ballast", releases)
    finally:
        folder.rmdir()


def test_a_full_disk_of_lancedb_leaves_the_old_release(releases: list[Release], tmp_path: Path) -> None:
    with small_disk(tmp_path, "2m"):
        published_on_a_full_disk(f"lancedb:{tmp_path / 'store'}", tmp_path / "ballast", releases)


def refusal(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """The one line that a refused command prints."""
    assert cli.main([str(word) for word in words]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert lines[-1].startswith("stillhouse: ") and "Traceback" not in "".join(lines)
    return lines[-1]


def test_wrong_credentials_and_addresses_are_refused_in_a_sentence(
    server: str, two_releases: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PGPASSWORD", "wrong")
    publish_to = ("publish", two_releases[0], "--to")
    for command in (publish_to, ("serve", two_releases[0], "--port", 0, "--store")):
        assert "$PGPASSWORD or ~/.pgpass" in refusal(capsys, *command, server)
    assert "leave it out" in refusal(capsys, *publish_to, server.replace("owner@", f"owner:{PASSWORD}@"))
    nobody = "127.0.0.1:1"
    for place in (f"postgresql://{nobody}/x", f"qdrant:http://{nobody}"):
        assert "check the address, and that the store runs" in refusal(capsys, *publish_to, place)
    assert "is not a store address" in refusal(capsys, *publish_to, "mysql://localhost/x")
    assert "small letters" in refusal(capsys, *publish_to, "lancedb:x#A b")
    monkeypatch.setitem(sys.modules, "lancedb", None)
    monkeypatch.delitem(sys.modules, "stillhouse.serving.stores.lance", raising=False)
    assert "stillhouse[lancedb]" in refusal(capsys, *publish_to, "lancedb:x")


def test_a_bulk_file_holds_every_passage(two_releases: list[Path], releases: list[Release], tmp_path: Path) -> None:
    path = tmp_path / "passages.ndjson"
    assert cli.main(["publish", str(two_releases[0]), "--to", f"opensearch:{path}#articles"]) == 0
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    actions, rows = [line["index"] for line in lines[::2]], lines[1::2]
    assert {each["_index"] for each in actions} == {publishing.table_of(releases[0], "articles")}
    assert [each["_id"] for each in actions] == [row["passage_id"] for row in rows]
    places = range(24)
    assert [row["text"] for row in rows] == [row["text"] for row in releases[0].passages.at(places, "text")]
    assert [row["fields"] for row in rows] == releases[0].passages.fields_at(places)
    vectors = np.array([row["vector"] for row in rows], dtype=np.float32)
    np.testing.assert_array_equal(vectors, releases[0].index.vectors(np.arange(24, dtype=np.int32)))


def test_the_command_publishes_and_rolls_back(
    two_releases: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"lancedb:{tmp_path}#articles"
    for folder in two_releases:
        assert cli.main(["publish", str(folder), "--to", address]) == 0
    after = open_store(address).live()
    assert after in capsys.readouterr().out
    assert cli.main(["publish", "--rollback", "--to", address]) == 0
    assert open_store(address).live() != after
    first = open_release(FolderSource(two_releases[0]))
    same_as_brute(StoreSearcher.open(two_releases[0] / "retriever", address), first)
