"""Stillhouse recognises its own files in a user's folder by their bytes, even after a kill."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from stillhouse.core.errors import InputError
from stillhouse.core.own_files import own_file, own_files, refuse_foreign_files


def write(folder: Path, **texts: str) -> None:
    with own_files(folder, ["a.txt", "b.txt", "runs/"]) as staging:
        for name, text in texts.items():
            path = staging / name.replace("__", "/").replace("_txt", ".txt")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)


def files(folder: Path) -> dict[str, str]:
    found = [path for path in folder.rglob("*") if path.is_file() and ".stillhouse" not in path.parts]
    return {path.relative_to(folder).as_posix(): path.read_text() for path in found}


def test_own_files_are_replaced_and_old_ones_removed(tmp_path: Path) -> None:
    write(tmp_path, a_txt="1", runs__one__x_txt="1", runs__two__x_txt="1")
    (tmp_path / "notes.txt").write_text("mine")
    write(tmp_path, a_txt="2", runs__two__x_txt="2")
    assert files(tmp_path) == {"a.txt": "2", "runs/two/x.txt": "2", "notes.txt": "mine"}
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["two"]
    write(tmp_path)
    assert "a.txt" in files(tmp_path), "a block that wrote nothing has no results to put there"


def test_an_error_changes_nothing(tmp_path: Path) -> None:
    write(tmp_path, a_txt="1")
    with pytest.raises(RuntimeError), own_files(tmp_path, ["a.txt"]) as staging:
        (staging / "a.txt").write_text("half")
        raise RuntimeError
    assert files(tmp_path) == {"a.txt": "1"}
    assert [path.name for path in (tmp_path / ".stillhouse").iterdir()] == ["made.json"]


def test_a_file_that_appeared_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match=r"b\.txt exists, and Stillhouse did not make it"),
        own_files(tmp_path, ["a.txt", "b.txt"]) as staging,
    ):
        for name in ("a.txt", "b.txt"):
            (staging / name).write_text("1")
        (tmp_path / "b.txt").write_text("mine")
    assert files(tmp_path) == {"b.txt": "mine"}


def test_a_file_that_was_changed_is_the_users(tmp_path: Path) -> None:
    write(tmp_path, a_txt="1")
    (tmp_path / "a.txt").write_text("corrected")
    with pytest.raises(InputError, match=r"a\.txt was changed since Stillhouse wrote it; move it away"):
        write(tmp_path, a_txt="2")
    assert files(tmp_path) == {"a.txt": "corrected"}
    (tmp_path / "a.txt").unlink()
    write(tmp_path, a_txt="2")


@pytest.mark.parametrize("moment", range(6))
def test_after_a_kill_the_files_are_known_as_stillhouses(
    moment: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kill comes before each rename in turn: of the record, of either file, of the record again."""
    write(tmp_path, a_txt="1", b_txt="1")
    left, replace = [moment], Path.replace

    def until(self: Path, target: Path) -> Path:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", until)
        if moment < 4:
            with pytest.raises(KeyboardInterrupt):
                write(tmp_path, a_txt="2", b_txt="2")
        else:
            write(tmp_path, a_txt="2", b_txt="2")
    assert {*files(tmp_path)} == {"a.txt", "b.txt"}
    write(tmp_path, a_txt="3", b_txt="3")
    assert files(tmp_path) == {"a.txt": "3", "b.txt": "3"}


def test_concurrent_processes_lose_no_record(tmp_path: Path) -> None:
    names = [f"{n}.json" for n in range(8)]

    def make(name: str) -> None:
        with own_file(tmp_path / name) as path:
            path.write_text(name)

    threads = [threading.Thread(target=make, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    refuse_foreign_files(tmp_path, names)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"a.txt": 1}'])
def test_a_damaged_record_makes_nothing_stillhouses(content: str, tmp_path: Path) -> None:
    write(tmp_path, a_txt="1")
    (tmp_path / ".stillhouse" / "made.json").write_text(content)
    with pytest.raises(InputError, match=r"made\.json is damaged"):
        write(tmp_path, a_txt="2")
    assert files(tmp_path) == {"a.txt": "1"}
