"""Publishing that is killed, that two processes do at once, or that a store refuses: the old release answers on."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from postgres_server import PASSWORD, postgres_server
from serving_releases import open_release
from test_stores import address, quiet, releases, same_as_brute, searcher_of, server

from stillhouse import cli
from stillhouse.core.errors import InputError
from stillhouse.serving.release import Release
from stillhouse.serving.source import FolderSource
from stillhouse.serving.stores.publish import publish
from stillhouse.serving.stores.searcher import RELEASE
from stillhouse.serving.stores.store import Store, open_store

__all__ = ["address", "releases", "server"]
PUBLISHER = """
import sys
from pathlib import Path
from stillhouse.cli.serve import open_release
from stillhouse.core.errors import InputError
from stillhouse.serving.source import FolderSource
from stillhouse.serving.stores import publish, store
publish.BATCH = 2
release = open_release(FolderSource(Path(sys.argv[1])))
print("ready", flush=True)
sys.stdin.readline()
try:
    publish.publish(release, store.open_store(sys.argv[2]), lambda line: None)
except InputError as error:
    sys.exit(f"refused: {error}")
"""


def publisher(folder: Path, address: str) -> subprocess.Popen[str]:
    """A process that publishes a release once it is told to."""
    words = [sys.executable, "-c", PUBLISHER, folder, address]
    pipe = subprocess.PIPE
    started = subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert started.stdout and started.stdout.readline() == "ready\n", started.communicate()[1]
    return started


def go(started: subprocess.Popen[str]) -> None:
    assert started.stdin
    started.stdin.write("\n")
    started.stdin.flush()


@contextmanager
def asking_all_the_while(address: str, release: Release) -> Iterator[None]:
    """Asks the store without a pause, and compares each answer with brute force."""
    over, wrong, asked = threading.Event(), [], []

    def ask() -> None:
        try:
            searcher = searcher_of(release, open_store(address))
            while not over.is_set():
                same_as_brute(searcher, release)
                asked.append(1)
        except BaseException as error:
            wrong.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert not wrong and asked


def forget(store: Store, table: str) -> None:
    """Removes a release that is not in use."""
    store.note(RELEASE, {table: None})
    store.drop(table)


def kill_publishes(address: str, folders: list[Path], releases: list[Release], kills: int) -> None:
    store = open_store(address)
    [old, new] = [publish(each, store, quiet) for each in releases]
    store.swap(old)
    seed, seconds, landed = random.SystemRandom().randrange(2**32), 1.0, 0
    chance = random.Random(seed)
    for number in range(20 * kills):
        forget(store, new)
        started = publisher(folders[1], address)
        moment = 0.0 if not number else chance.uniform(0, seconds)
        with asking_all_the_while(address, releases[0]):
            go(started)
            begin = time.monotonic()
            if number:
                time.sleep(moment)
                started.kill()
            started.wait()
        if not number:
            seconds = time.monotonic() - begin  # of an undisturbed publish
            assert store.live() == new
        elif started.returncode < 0:
            landed += 1
            print(f"seed {seed}: killed after {moment:.3f} of {seconds:.3f} s, {store.live() == old = }")
        same_as_brute(searcher_of(releases[store.live() == new], store), releases[store.live() == new])
        publish(releases[1], store, quiet)
        same_as_brute(searcher_of(releases[1], store), releases[1])
        store.swap(old)
        if landed == kills:
            return
    raise AssertionError(f"seed {seed}: only {landed} kills hit a publish")


def test_a_killed_publish_leaves_the_old_release(
    server: str, two_releases: list[Path], releases: list[Release], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    kill_publishes(f"{server}#killed", two_releases, releases, 3)


@pytest.mark.long
@pytest.mark.parametrize("store", ["postgresql", "lancedb"])
def test_fifty_killed_publishes_leave_the_old_release(
    server: str,
    store: str,
    two_releases: list[Path],
    releases: list[Release],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    kill_publishes(f"lancedb:{tmp_path}" if store == "lancedb" else f"{server}#fifty", two_releases, releases, 50)


@pytest.mark.parametrize("same", [True, False])
def test_of_two_publishers_one_release_is_whole(
    server: str, two_releases: list[Path], releases: list[Release], same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    address = f"{server}#both{same:d}"
    started = [publisher(two_releases[number], address) for number in ((0, 0) if same else (0, 1))]
    for each in started:
        go(each)
    said = [each.communicate(timeout=120)[1] for each in started]
    codes = [each.returncode for each in started]
    assert 0 in codes if same else codes == [0, 0], said
    assert all(not code or text.startswith("refused: another process") for code, text in zip(codes, said)), said
    store = open_store(address)
    for release in releases[: 1 if same else 2]:
        live = publish(release, store, pytest.fail)  # it is there, and whole
        assert live == store.live()
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
    for address in (f"postgresql://{nobody}/x", f"qdrant:http://{nobody}"):
        assert "check the address, and that the store runs" in refusal(capsys, *publish_to, address)
    assert "is no store's address" in refusal(capsys, *publish_to, "mysql://localhost/x")
    assert "small letters" in refusal(capsys, *publish_to, "lancedb:x#A b")
    monkeypatch.setitem(sys.modules, "lancedb", None)
    monkeypatch.delitem(sys.modules, "stillhouse.serving.stores.lance", raising=False)
    assert "stillhouse[lancedb]" in refusal(capsys, *publish_to, "lancedb:x")


def test_the_command_publishes_and_rolls_back(
    two_releases: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"lancedb:{tmp_path}#articles"
    for folder in two_releases:
        assert cli.main(["publish", str(folder), "--to", address]) == 0
    after = open_store(address).live()
    assert after in capsys.readouterr().out
    assert cli.main(["publish", "--rollback", "--to", address]) == 0
    first = open_release(FolderSource(two_releases[0]))
    store = open_store(address)
    assert store.live() != after
    same_as_brute(searcher_of(first, store), first)
