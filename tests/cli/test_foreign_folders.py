"""No step, and no command that runs several, replaces or removes foreign files in a folder that a user named."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from writing_commands import CASES, Case

from stillhouse.core.errors import InputError

MINE = b"years of work\n"
ENTRIES = 8
"""About how many of a command's outputs are tried one by one: half at the top, the rest below."""


def entries(folder: Path) -> dict[str, bytes | str | None]:
    """Return every entry below a folder: the bytes of a file, the target of a link, None for a folder."""
    return {
        path.relative_to(folder).as_posix(): path.readlink().as_posix()
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else None
        for path in sorted(folder.rglob("*"))
    }


def files_of(folder: Path) -> set[str]:
    """Return the files and links below a folder, without git's own files."""
    return {name for name, content in entries(folder).items() if content is not None and "/.git/" not in name}


def chosen(names: list[str]) -> list[str]:
    """Choose the names with the fewest parts, and every n-th of the others."""
    ordered = sorted(names, key=lambda name: (name.count("/"), name))
    few = ordered[: ENTRIES // 2]
    rest = ordered[ENTRIES // 2 :]
    return few + rest[:: max(1, len(rest) * 2 // ENTRIES)]


class Trial:
    """A command line, with fresh places each time."""

    def __init__(self, case: Case, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.case, self.place, self.capsys, self.times = case, place, capsys, 0

    def fresh(self) -> Path:
        self.times += 1
        there = self.place / str(self.times)
        there.mkdir()
        return there

    def run(self, there: Path) -> int:
        code = self.case.run(there, self.place / "inputs")
        logged = self.capsys.readouterr().err
        assert code in (0, InputError.exit_code) and "Traceback" not in logged, logged
        return code


@pytest.fixture(params=CASES)
def trial(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Trial]:
    monkeypatch.delenv("STILLHOUSE_WORK", raising=False)
    (tmp_path / "inputs").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    case = CASES[request.param]
    case.prepare(monkeypatch, tmp_path / "inputs")
    yield Trial(case, tmp_path, capsys)
    assert not any((tmp_path / "elsewhere").iterdir()), "written where nobody asked"


def test_files_of_others_stay_byte_for_byte(trial: Trial) -> None:
    first = trial.fresh()
    assert trial.run(first) == 0
    written = entries(first)
    files = chosen([name for name, content in written.items() if content is not None])
    folders = chosen([name for name, content in written.items() if content is None])
    assert files

    # A file with the name of each file and folder that the command writes.
    for name in (*files, *folders):
        there = trial.fresh()
        (there / name).parent.mkdir(parents=True, exist_ok=True)
        (there / name).write_bytes(MINE)
        before = entries(there)
        trial.run(there)
        left = {known: content for known, content in entries(there).items() if known in before}
        if Path(name).name in (".gitignore", ".dvcignore"):
            assert (there / name).read_bytes().startswith(MINE)
        else:
            assert left == before, name

    # A link with that name to someone else's file or folder.
    for name in (*files, *folders):
        there, others = trial.fresh(), trial.fresh()
        (others / "folder").mkdir()
        for place in ("file", "folder/notes.txt", "folder/manifest.json", "folder/metrics.json"):
            (others / place).write_bytes(MINE)
        before = entries(others)
        (there / name).parent.mkdir(parents=True, exist_ok=True)
        (there / name).symlink_to(others / ("file" if name in files else "folder"))
        trial.run(there)
        assert (there / name).is_symlink(), name
        assert before.items() <= entries(others).items(), name

    # A file next to those that the command wrote, when it runs again.
    for name in folders:
        there = shutil.copytree(first, trial.fresh(), symlinks=True, dirs_exist_ok=True)
        (there / name / "notes.txt").write_bytes(MINE)
        trial.run(there)
        assert (there / name / "notes.txt").read_bytes() == MINE, name


def test_a_second_run_continues_in_the_folder_of_the_first(trial: Trial) -> None:
    there = trial.fresh()
    assert trial.run(there) == 0
    before = files_of(there)
    assert trial.run(there) == trial.case.again
    assert files_of(there) == before


OWN = ("metrics.json", "report.json", "r.json", "zero_shot.html", "comparison.json", "e.json")


def test_a_file_that_the_user_changed_is_no_longer_replaced(trial: Trial) -> None:
    """This applies to single files; a damaged artifact folder is made again."""
    there = trial.fresh()
    assert trial.run(there) == 0
    for name, content in entries(there).items():
        if content is not None and Path(name).name in OWN and "/artifacts/" not in name:
            (there / name).write_bytes(MINE)
            assert trial.run(there) == InputError.exit_code, name
            assert (there / name).read_bytes() == MINE
            (there / name).write_bytes(content if isinstance(content, bytes) else b"")
