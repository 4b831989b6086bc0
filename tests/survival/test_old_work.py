"""Abandoned unfinished work is removed after a while, but never that of a running process."""

from __future__ import annotations

import errno
import os
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from held_folders import held

from stillhouse.core.config import setting
from stillhouse.core.context import Context, work_root
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.old_work import DAYS
from stillhouse.pipeline.steps.spec import Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config:
    text: str = setting("", "what the output holds")


def write(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    (outputs["out"] / "text").write_text(config.text)
    (context.work / "progress").write_text(config.text)
    return Report("done")


WRITE = Step("write", "writes a text", Config, (), (Port("out", "a text"),), write)


def run(tmp_path: Path, text: str = "") -> None:
    execute(WRITE, Config(text=text), {}, {"out": tmp_path / f"out{text}"})


def unfinished(name: str, days: float = DAYS + 1) -> Path:
    """Make a work folder whose files were last written this many days ago."""
    folder = work_root() / name
    (folder / "source").mkdir(parents=True)
    (folder / "source" / "progress").write_text("half of it")
    touch(folder, days)
    return folder


def touch(folder: Path, days: float) -> None:
    when = time.time() - days * 24 * 3600
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (when, when))


def refuse_to_lock(file: int, how: int) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def test_old_work_of_the_same_step_is_removed_and_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = unfinished(f"write-{'a' * 20}")
    others = [
        unfinished(f"write-{'b' * 20}", DAYS - 1),
        unfinished(f"write-more-{'c' * 20}"),
        unfinished("write-notes"),
        unfinished("embeddings"),
    ]
    monkeypatch.delenv("STILLHOUSE_QUIET", raising=False)
    run(tmp_path)
    assert f"removed unfinished work that is more than {DAYS} days old: {old.name}\n" in capsys.readouterr().err
    assert sorted(work_root().iterdir()) == sorted(others)
    run(tmp_path)
    assert "removed" not in capsys.readouterr().err


def test_work_that_another_process_holds_stays(tmp_path: Path) -> None:
    folder = unfinished(f"write-{'a' * 20}")
    with held(folder):
        run(tmp_path)
        assert folder.is_dir()
    run(tmp_path)
    assert not folder.exists()


@pytest.mark.parametrize("locks", [True, False])
def test_a_step_resumes_its_own_work_however_old(locks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This also holds where the file system cannot lock, so that nothing else protects the work."""
    found = []
    if not locks:
        monkeypatch.setattr("stillhouse.core.lock.fcntl.flock", refuse_to_lock)

    def note(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
        found.append((context.work / "progress").is_file())
        (context.work / "progress").write_text("half of it")
        if len(found) == 1:
            raise KeyboardInterrupt
        return Report("done")

    step = Step("note", "goes on", Config, (), (Port("out", "nothing"),), note)
    with pytest.raises(KeyboardInterrupt):
        execute(step, Config(), {}, {"out": tmp_path / "out"})
    [left] = work_root().iterdir()
    touch(left, DAYS + 1)
    execute(step, Config(), {}, {"out": tmp_path / "out"})
    assert found == [False, True]
