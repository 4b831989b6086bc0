"""Remembered digests: a file that changed in any way is read again, and an unchanged one is not."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from read_files import noted_reads

from stillhouse.core.file_stamps import FileStamps


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    return noted_reads(monkeypatch)


def own_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def look(memory: Path, *paths: Path, verify: bool = False) -> list[str]:
    """Return the digests that a new process would find."""
    stamps = FileStamps(memory, verify)
    found = [stamps.digest(path) for path in paths]
    stamps.save()
    return found


def test_a_file_is_read_once(tmp_path: Path, read: list[str]) -> None:
    one, two, memory = tmp_path / "one", tmp_path / "two", tmp_path / "work" / "digests.json"
    one.write_bytes(b"one")
    two.write_bytes(b"one")
    for _ in range(3):
        assert look(memory, one, two) == [own_digest(one)] * 2
    assert read == ["one", "two"]
    assert look(memory, one, verify=True) == [own_digest(one)] and read == ["one", "two", "one"]
    assert look(memory, one) == [own_digest(one)] and read == ["one", "two", "one"]


def in_place(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"O")


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"One")
    other.replace(path)


def longer(path: Path) -> None:
    path.write_bytes(b"one more")


def time_set_back(path: Path) -> None:
    before = path.stat()
    in_place(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    now = path.stat()
    assert (now.st_size, now.st_mtime_ns, now.st_ino) == (before.st_size, before.st_mtime_ns, before.st_ino)


def restored_by_name(path: Path) -> None:
    """Another file of the same size and time takes the name."""
    before, other = path.stat(), path.with_name("other")
    other.write_bytes(b"One")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize("change", [in_place, replaced, longer, time_set_back, restored_by_name])
def test_a_changed_file_is_read_again(change: Callable[[Path], None], tmp_path: Path, read: list[str]) -> None:
    path, memory = tmp_path / "one", tmp_path / "digests.json"
    path.write_bytes(b"one")
    time.sleep(0.02)  # a tick of the clock
    before = look(memory, path)
    time.sleep(0.02)
    change(path)
    assert look(memory, path) == [own_digest(path)] != before


def test_the_digest_of_a_file_that_has_just_changed_is_not_cached(tmp_path: Path) -> None:
    """Another write within one tick of the clock would leave no trace."""
    path, memory = tmp_path / "one", tmp_path / "digests.json"
    path.write_bytes(b"one")
    look(memory, path)
    assert not memory.exists()
