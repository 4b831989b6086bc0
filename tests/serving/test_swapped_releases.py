"""A folder is replaced while clients ask: every answer is from the release that it names; a damaged one is refused."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
from serving_releases import PARTS, open_release, running

from stillhouse import cli
from stillhouse.core.artifacts import whole_folder, write_manifest
from stillhouse.core.errors import InputError
from stillhouse.models.cross_encoder import CrossEncoder
from stillhouse.serving import release as release_module
from stillhouse.serving.release import Release
from stillhouse.serving.source import FolderSource, Source

QUERIES = ["where does the red bird one sing", "which tree grows", "green fish in the tree"]
RUNS = [sys.executable, "-m", "stillhouse.cli", "serve"]


def point(link: Path, folder: Path) -> None:
    """Points a link at a folder, in one step."""
    new = link.with_name(".new")
    new.symlink_to(folder)
    new.replace(link)


@pytest.mark.parametrize("damage", ["a changed file", "another index", "a missing part"])
def test_a_damaged_release_is_refused_and_the_old_one_answers(
    two_releases: list[Path], tmp_path: Path, damage: str
) -> None:
    bad = tmp_path / "bad"
    shutil.copytree(two_releases[1], bad)
    if damage == "a changed file":
        path = bad / "retriever" / "model.safetensors"
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    else:
        shutil.rmtree(bad / "index")
        if damage == "another index":
            shutil.copytree(two_releases[0] / "index", bad / "index")
    link = tmp_path / "in-use"
    point(link, two_releases[0])
    with running(link) as service:
        before = service.search(query=QUERIES[0])
        point(link, bad)
        assert not service.service.releases.look()
        assert service.search(query=QUERIES[0]) == before
        refused = service.client.get("/info").json()["refused"]
        assert str(bad) in refused["reason"] and refused["at"]
        point(link, two_releases[1])
        assert service.service.releases.look()
        about = service.client.get("/info").json()
        assert about["refused"] is None and about["release"] != before["release"]


def test_going_back_answers_as_before(two_releases: list[Path], tmp_path: Path) -> None:
    link = tmp_path / "in-use"
    point(link, two_releases[0])
    with running(link) as service:
        releases = service.service.releases
        before = service.search(query=QUERIES[0])
        for folder in two_releases[::-1]:
            point(link, folder)
            assert releases.look() and not releases.look()
        assert releases.swaps == 2 and service.search(query=QUERIES[0]) == before


def test_replacing_the_folder_does_not_change_the_answers_of_an_open_release(
    two_releases: list[Path], tmp_path: Path
) -> None:
    shutil.copytree(two_releases[0], tmp_path / "release")
    with running(tmp_path / "release") as service:
        before = service.search(queries=QUERIES)
        shutil.rmtree(tmp_path / "release")
        assert service.search(queries=QUERIES) == before


class Flipped(FolderSource):
    """A source whose link is moved to `then`, once, just before it is followed."""

    def __init__(self, link: Path) -> None:
        super().__init__(link)
        self.link = link
        self.then: Path | None = None

    def folders(self) -> dict[str, Path]:
        if self.then:
            point(self.link, self.then)
            self.then = None
        return super().folders()


@pytest.mark.parametrize("when", ["at the start", "later"])
def test_a_link_that_changes_while_it_is_read_is_followed(when: str, two_releases: list[Path], tmp_path: Path) -> None:
    """The opened release comes from the other folder. It must not pass for the release of the first one."""
    link, source = tmp_path / "in-use", Flipped(tmp_path / "in-use")
    again = tmp_path / "again"
    shutil.copytree(two_releases[0], again)
    names = [open_release(FolderSource(folder)).name for folder in two_releases]
    point(link, two_releases[1] if when == "at the start" else two_releases[0])
    source.then = again if when == "at the start" else None
    with running(source) as service:
        releases = service.service.releases
        assert releases.current.name == names[0]
        if when == "later":
            point(link, two_releases[1])
            source.then = again
            releases.look()
            assert releases.current.name == names[0], "as the link leads there now"
        point(link, two_releases[1])
        assert releases.look() and releases.current.name == names[1]
        assert not releases.look() and releases.current.name == names[1]
        assert service.search(query=QUERIES[0])["release"] == names[1]


def test_parts_that_are_replaced_while_they_are_read_do_not_answer(
    two_releases: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run replaces the index after the digests were compared; the next check finds the whole release."""
    folder, load = tmp_path / "release", release_module.open_index
    shutil.copytree(two_releases[0], folder)

    def replaced(place: Path, corpus: Any) -> Any:
        for part in PARTS:
            shutil.rmtree(folder / part)
            shutil.copytree(two_releases[0] / part, folder / part)
        return load(place, corpus)

    with running(folder) as service:
        releases, names = service.service.releases, [open_release(FolderSource(one)).name for one in two_releases]
        for part in PARTS:
            shutil.rmtree(folder / part)
            shutil.copytree(two_releases[1] / part, folder / part)
        with monkeypatch.context() as patched:
            patched.setattr(release_module, "open_index", replaced)
            releases.look()
        assert releases.current.name == names[0] and releases.refused is None


def test_a_release_that_a_full_disk_kept_out_is_tried_again(
    two_releases: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Source) -> Release:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    link, lines = tmp_path / "in-use", []
    point(link, two_releases[0])
    with running(link, lines=lines) as service:
        releases = service.service.releases
        point(link, two_releases[1])
        with monkeypatch.context() as patched:
            patched.setattr(releases, "_opener", full)
            assert not releases.look() and not releases.look()
        about = service.client.get("/info").json()
        assert os.strerror(errno.ENOSPC) in about["unreachable"]["reason"]
        assert sum(os.strerror(errno.ENOSPC) in line for line in lines) == 1
        assert releases.look() and releases.swaps == 1 and releases.unreachable is None


@pytest.mark.parametrize("part", ["index", "retriever", "corpus", "hybrid"])
def test_parts_of_two_releases_do_not_start(
    two_releases: list[Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    part: str,
) -> None:
    monkeypatch.setattr("stillhouse.serving.app.run", lambda *given: pytest.fail("it started"))
    mixed = tmp_path / "mixed"
    for name in PARTS:
        shutil.copytree(two_releases[name == part] / name, mixed / name)
    assert cli.main(["serve", str(mixed), "--port", "0"]) == 2
    said = capsys.readouterr().err
    assert "was made from another" in said and "run `stillhouse" in said and said.count("\n") == 1


def start(folder: Path, work: Path, more: Sequence[str] = (), **environment: str) -> tuple[subprocess.Popen[str], str]:
    """Start a service in a process of its own, and return it with its address once it listens."""
    own = {"STILLHOUSE_WORK": str(work), "STILLHOUSE_QUIET": "", "OMP_NUM_THREADS": "1"} | environment
    process = subprocess.Popen(
        [*RUNS, str(folder), "--port", "0", "--deadline", "120", *more],
        env=os.environ | own,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr
    line = process.stderr.readline()
    assert "http://" in line, line
    return process, "http" + line.strip().rpartition("http")[2]


def test_sigterm_ends_the_service_after_requests_in_flight(two_releases: list[Path], tmp_path: Path) -> None:
    process, url = start(two_releases[0], tmp_path)
    try:
        sent, statuses = threading.Event(), []

        def ask() -> None:
            with httpx2.Client(base_url=url, timeout=60, trust_env=False) as client:
                texts = ["passage text of the tree " * 320] * 256
                sent.set()  # two megabytes: it takes a while
                statuses.append(client.post("/embed", json={"inputs": texts, "prompt_name": "passage"}).status_code)

        thread = threading.Thread(target=ask)
        thread.start()
        sent.wait()
        time.sleep(0.2)
        assert not statuses
        process.send_signal(signal.SIGTERM)
        thread.join()
        assert statuses == [200] and process.wait(300) == 0
    finally:
        process.kill()
        process.communicate()


def test_ctrl_c_ends_the_service_quietly(two_releases: list[Path], tmp_path: Path) -> None:
    process, url = start(two_releases[0], tmp_path)
    assert httpx2.post(f"{url}search", json={"query": "tree"}, trust_env=False).status_code == 200
    process.send_signal(signal.SIGINT)
    assert process.wait(300) == 0
    assert "Traceback" not in process.communicate()[1]


def test_a_cross_encoder_of_another_corpus_is_refused(
    two_releases: list[Path], tiny_model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "release"
    shutil.copytree(two_releases[0], folder)
    with whole_folder(folder / "reranker") as staging:
        CrossEncoder.start(tiny_model, 32).save(staging)
        write_manifest(staging, "train-reranker", {}, {"corpus": "another"}, {})
    with pytest.raises(InputError, match="was trained on another corpus"):
        open_release(FolderSource(folder))
