"""Folders appear completely or not at all, and record what they were made from."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from stillhouse.core.artifacts import (
    MANIFEST,
    foreign_manifest,
    read_manifest,
    whole_folder,
    whole_folders,
    write_manifest,
    write_whole,
)
from stillhouse.core.errors import InputError
from stillhouse.core.lock import only_process


def make(path: Path, text: str = "content") -> Path:
    with whole_folder(path) as folder:
        (folder / "part").mkdir()
        (folder / "part" / "file.txt").write_text(text)
        write_manifest(folder, "ingest", {"depth": 3}, {"corpus": "abc"}, {"passages": 2})
    return path


def test_a_manifest_reads_back(tmp_path: Path) -> None:
    manifest = read_manifest(make(tmp_path / "a"))
    assert (manifest.step, manifest.config, manifest.inputs) == ("ingest", {"depth": 3}, {"corpus": "abc"})
    assert list(manifest.files) == ["part/file.txt"] and manifest.facts == {"passages": 2}


def test_the_digest_is_that_of_the_content(tmp_path: Path) -> None:
    first, same = read_manifest(make(tmp_path / "a")), read_manifest(make(tmp_path / "b"))
    other = read_manifest(make(tmp_path / "c", "other"))
    assert first.digest == same.digest != other.digest


def test_an_error_leaves_the_old_folder(tmp_path: Path) -> None:
    path = make(tmp_path / "a")
    with pytest.raises(RuntimeError), whole_folder(path) as folder:
        (folder / "half.txt").write_text("half")
        raise RuntimeError
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]
    assert (path / "part" / "file.txt").read_text() == "content"


def test_the_current_folder_is_locked_and_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    with only_process(Path()), pytest.raises(InputError, match="another process"), only_process(tmp_path / "here"):
        pass
    with pytest.raises(InputError, match="the current folder would be replaced"), whole_folder(Path()):
        pass


def test_leftovers_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".a.partial").mkdir()
    (tmp_path / ".a.partial" / "stale.txt").write_text("stale")
    assert not (make(tmp_path / "a") / "stale.txt").exists()
    assert [entry.name for entry in tmp_path.iterdir()] == ["a"]


def test_a_folder_set_aside_by_a_killed_run_comes_back(tmp_path: Path) -> None:
    make(tmp_path / "a").rename(tmp_path / ".a.previous")
    with pytest.raises(RuntimeError), whole_folder(tmp_path / "a"):
        raise RuntimeError
    assert (tmp_path / "a" / "part" / "file.txt").read_text() == "content"


def test_a_new_folder_replaces_the_old_one_whole(tmp_path: Path) -> None:
    path = make(tmp_path / "a")
    (path / "extra.txt").write_text("extra")
    make(path, "new")
    assert sorted(entry.name for entry in path.iterdir()) == [MANIFEST, "part"]


def claim(path: Path, old: str, new: str) -> None:
    text = (path / MANIFEST).read_text()
    assert old in text
    (path / MANIFEST).write_text(text.replace(old, new))


CORRUPTIONS = [
    ("changed", lambda path: (path / "part" / "file.txt").write_text("CONTENT"), "part/file.txt changed"),
    ("removed", lambda path: (path / "part" / "file.txt").unlink(), "part/file.txt changed"),
    ("added", lambda path: (path / "new.txt").write_text(""), "holds new.txt, which no step wrote"),
    ("half a manifest", lambda path: (path / MANIFEST).write_text('{"step": "in'), "damaged"),
    ("another form", lambda path: (path / MANIFEST).write_text('{"steps": 1}'), "damaged"),
    ("another claim", lambda path: claim(path, '"depth": 3', '"depth": 4'), "damaged"),
    ("another layout", lambda path: claim(path, "  ", "    "), "damaged"),
    ("without a seal", lambda path: claim(path, '"seal"', '"steal"'), "is damaged"),
    ("a list", lambda path: (path / MANIFEST).write_text("[]"), "damaged"),
    ("no manifest", lambda path: (path / MANIFEST).unlink(), "has no manifest.json"),
]


@pytest.mark.parametrize(("name", "corrupt", "message"), CORRUPTIONS, ids=[case[0] for case in CORRUPTIONS])
def test_corruption_is_named(tmp_path: Path, name: str, corrupt, message: str) -> None:  # type: ignore[no-untyped-def]
    path = make(tmp_path / "a")
    corrupt(path)
    with pytest.raises(InputError, match=message):
        read_manifest(path)


def test_no_bit_of_a_manifest_changes_unnoticed(tmp_path: Path) -> None:
    """This includes the digits of a setting and white space."""
    path = make(tmp_path / "a")
    data = (path / MANIFEST).read_bytes()
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        (path / MANIFEST).write_bytes(changed)
        with pytest.raises(InputError, match="damaged"):
            read_manifest(path, verify=False)


def test_a_model_from_elsewhere_is_known_by_its_files(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(InputError, match="is empty"):
        foreign_manifest(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text("{}")
    before = foreign_manifest(tmp_path / "model").digest
    (tmp_path / "model" / "config.json").write_text("{ }")
    assert foreign_manifest(tmp_path / "model").digest != before


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Path]]:
    """Records every sync, rename (by the new name) and removal, in order."""
    seen: list[tuple[str, Path]] = []
    fsync = os.fsync

    def synced(number: int) -> None:
        seen.append(("sync", Path(f"/proc/self/fd/{number}").readlink()))
        fsync(number)

    def record(what: str, name: str) -> None:
        real = getattr(os, name)

        def call(path: Any, *more: Any, **named: Any) -> Any:
            seen.append((what, Path(os.fspath(more[0] if what == "rename" else path))))
            return real(path, *more, **named)

        monkeypatch.setattr(os, name, call)

    monkeypatch.setattr(os, "fsync", synced)
    record("rename", "rename")
    record("rename", "replace")
    record("remove", "rmdir")
    return seen


def test_a_folder_is_on_the_disk_before_it_has_its_name(tmp_path: Path, calls: list[tuple[str, Path]]) -> None:
    """Its files and folders are synced before the rename and its parent after it. The old folder is removed last."""
    make(tmp_path / "a", "old")
    calls.clear()
    path, partial = make(tmp_path / "a"), tmp_path / ".a.partial"
    renamed = calls.index(("rename", path))
    before = {place for what, place in calls[:renamed] if what == "sync"}
    assert before >= {partial / MANIFEST, partial / "part" / "file.txt", partial / "part", partial}
    assert calls[renamed + 1] == ("sync", tmp_path)
    assert [place.name for what, place in calls[renamed:] if what == "remove"][-1] == ".a.previous"


def test_folders_that_belong_together_are_on_the_disk_before_the_first_is_renamed(
    tmp_path: Path, calls: list[tuple[str, Path]]
) -> None:
    with whole_folders([tmp_path / "a", tmp_path / "b"]) as stagings:
        for staging in stagings:
            (staging / "file").write_text("x")
    first = next(number for number, (what, _) in enumerate(calls) if what == "rename")
    synced = {place for what, place in calls[:first] if what == "sync"}
    assert synced >= {tmp_path / f".{name}.partial" / "file" for name in "ab"}


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, calls: list[tuple[str, Path]]) -> None:
    write_whole(tmp_path / "a.txt", "text")
    assert calls == [("sync", tmp_path / ".a.txt.partial"), ("rename", tmp_path / "a.txt"), ("sync", tmp_path)]


@pytest.mark.parametrize(("number", "written"), [(errno.EINVAL, True), (errno.EIO, False)])
def test_a_disk_without_folder_sync_is_accepted_and_a_failing_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, written: bool
) -> None:
    fsync = os.fsync

    def refuse(descriptor: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    if written:
        make(tmp_path / "a")
    else:
        with pytest.raises(OSError, match=os.strerror(number)):
            make(tmp_path / "a")
    assert (tmp_path / "a").exists() == written
