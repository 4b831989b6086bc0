"""Files that are truncated in place never stop a service and never cause a wrong answer."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import httpx2
import pytest
from serving_releases import searcher_of
from test_swapped_releases import start

from stillhouse.context import Context
from stillhouse.open_folders import OpenFolders
from stillhouse.serving.release import Ranked, Release
from stillhouse.serving.source import FolderSource


def shorten(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            os.truncate(path, 0)


def test_a_service_outlives_files_that_are_shortened_under_it(two_releases: list[Path], tmp_path: Path) -> None:
    folder = tmp_path / "release"
    shutil.copytree(two_releases[0], folder)
    process, url = start(folder, tmp_path / "work")
    try:
        with httpx2.Client(base_url=url, timeout=60, trust_env=False) as client:
            assert client.post("/search", json={"query": "tree"}).status_code == 200
            shorten(folder)
            for _ in range(3):
                assert client.post("/search", json={"query": "red fish"}).status_code == 503
            assert client.get("/health").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


def test_what_was_opened_is_searched_though_the_files_are_shortened_meanwhile(
    two_releases: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files shrink between the check and the search, when a mapped file would kill the process."""
    folder = tmp_path / "release"
    shutil.copytree(two_releases[0], folder)
    wanted = searcher_of(two_releases[0]).search("red fish", 5)
    pid = os.fork()
    if not pid:  # a separate process: without the fix, SIGBUS kills it
        status = 1
        try:
            release = Release(FolderSource(folder).folders(), Context(tmp_path, "cpu", quiet=True))
            monkeypatch.setattr(OpenFolders, "refuse_changed", lambda self: None)
            shorten(folder)
            vectors = release.encode(release.tokenize(["red fish"], "query"), "query")
            [found] = release.rank(["red fish"], vectors, [Ranked(5)])
            ids = [each["passage_id"] for each in release.passages.at(found.rows, "passage_id")]
            status = 0 if ids == [hit.passage_id for hit in wanted] else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
