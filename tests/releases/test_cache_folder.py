"""The run cache of the work area: what is removed when it is full, what stays, and which folders are never touched."""

from __future__ import annotations

import os
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from stillhouse.errors import InputError
from stillhouse.releases.cache_folder import FOLDER, GIB, LIMIT, CacheFolder, NoRoom, bytes_of, own_cache

Disk = namedtuple("Disk", "total used free")


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A work area on a disk of 1,000 bytes with 500 free."""
    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path))
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Disk(1000, 500, 500))
    return tmp_path


def stored(folder: Path, **used: int) -> None:
    """Write files of 10 bytes under their digests, each with the time of its last use."""
    for digest, at in used.items():
        path = folder / "files" / "md5" / digest[:2] / digest[2:]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(10))
        path.chmod(0o444)
        os.utime(path, (at, at))


def held(folder: Path) -> set[str]:
    return {path.parent.name + path.name for path in folder.rglob("*") if path.is_file()}


ROOM = {
    "there is room": (100, 20, {"aa1", "bb2", "cc3"}),
    "the oldest goes": (100, 75, {"aa1", "cc3"}),
    "as many as it takes": (100, 85, {"aa1"}),
    "all of them": (100, 100, set()),
    # 30 bytes are in use and 500 are free. A tenth of 1,000 must stay free, so the limit is 430.
    "the volume is fuller than the limit": (GIB, 401, {"aa1", "cc3"}),
}


@pytest.mark.parametrize("case", ROOM)
def test_the_least_recently_used_data_is_evicted_first(case: str, work: Path) -> None:
    limit, needed, kept = ROOM[case]
    stored(work, aa1=300, bb2=100, cc3=200)
    CacheFolder(work, limit).make_room(needed)
    assert held(work) == kept


@pytest.mark.parametrize(("limit", "needed"), [(100, 101), (GIB, 431)])
def test_nothing_is_evicted_for_data_that_never_fits(limit: int, needed: int, work: Path) -> None:
    stored(work, aa1=300, bb2=100, cc3=200)
    with pytest.raises(NoRoom, match="the run cache may use"):
        CacheFolder(work, limit).make_room(needed)
    assert held(work) == {"aa1", "bb2", "cc3"}


def test_data_that_is_used_stays_longer(work: Path) -> None:
    stored(work, aa1=300, bb2=100, cc3=200)
    CacheFolder(work, 100).use(["bb2", "dd4"])
    CacheFolder(work, 100).make_room(75)
    assert held(work) == {"aa1", "bb2"}


def test_nothing_but_the_work_areas_own_folder_is_ever_cleared(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(work)
    own = own_cache(str(work / FOLDER))
    assert own == CacheFolder(work / FOLDER, 10 * GIB)
    for address in ("s3://bucket/run-cache", f"ssh://host{work}/{FOLDER}", str(work), str(work / "shelf"), "/store"):
        assert own_cache(address) is None, address


@pytest.mark.parametrize("text", ["much", "-1", "nan", "inf"])
def test_an_invalid_limit_is_refused(text: str, work: Path) -> None:
    assert own_cache(str(work / FOLDER), {LIMIT: "0.5"}) == CacheFolder(work / FOLDER, GIB // 2)
    with pytest.raises(InputError, match=r"\$STILLHOUSE_RUN_CACHE_GIB is .*number of GiB"):
        own_cache(str(work / FOLDER), {LIMIT: text})


def test_bytes_are_those_of_all_files(tmp_path: Path) -> None:
    stored(tmp_path / "one", aa1=1, bb2=2)
    stored(tmp_path / "two", aa1=1)
    assert bytes_of([tmp_path / "one", tmp_path / "two"]) == 30


def test_the_entry_of_a_stage_outlives_older_data(work: Path) -> None:
    """Only data is marked as used, so the entry of a stage that is used every day looks old."""
    stored(work, aa1=300, bb2=200)
    entry = work / "runs" / "ab" / "abc" / "def"
    entry.parent.mkdir(parents=True)
    entry.write_bytes(bytes(10))
    os.utime(entry, (1, 1))
    CacheFolder(work, 100).make_room(75)
    assert held(work) == {"aa1", "abcdef"}
    CacheFolder(work, 100).make_room(100)
    assert held(work) == set()
