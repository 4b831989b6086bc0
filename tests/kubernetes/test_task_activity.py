"""A task's log is never silent: before, between and after its steps, and with a run cache."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from silence import SOON, slow, talk_soon
from test_task import arguments, breaks, ran  # noqa: F401

from stillhouse.config import build
from stillhouse.context import QUIET
from stillhouse.errors import CrashElsewhere
from stillhouse.kubernetes.pods import cached_step, several_processes, task
from stillhouse.kubernetes.pods.task import run_task
from stillhouse.monitoring.activity import watched
from stillhouse.steps import registry
from stillhouse.steps.registry import find_step


@pytest.fixture(autouse=True)
def talkative(monkeypatch: pytest.MonkeyPatch) -> None:
    talk_soon(monkeypatch)


def test_copies_and_digests_are_not_silent(
    tmp_path: Path,
    ran: list[str],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    slow(task, "link_or_copy", monkeypatch)
    slow(task, "made_of", monkeypatch)
    whole = registry.steps()["bm25"]
    breaks(monkeypatch, "bm25", RuntimeError("the node went away"))
    with pytest.raises(RuntimeError):
        run_task("prepare", arguments(tmp_path / "first"))
    assert "[ingest] still handing over what it wrote (" in capsys.readouterr().err
    monkeypatch.setitem(registry.steps(), "bm25", whole)
    run_task("prepare", arguments(tmp_path / "second"))
    said = capsys.readouterr().err
    assert "[validate] still checking whether an earlier try did it (" in said
    assert "[bm25] still handing over what it wrote (" in said


def test_the_run_cache_is_not_silent(
    tmp_path: Path,
    ran: list[str],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Empty:
        url, damaged, broken, mended = "somewhere", (), False, ()

        def restore(self) -> None:
            time.sleep(4 * SOON)

        def save(self, places: Any) -> None:
            time.sleep(4 * SOON)

    def opened(*given: Any) -> Empty:
        time.sleep(4 * SOON)
        return Empty()

    monkeypatch.setattr(cached_step, "open_run_cache", opened)
    monkeypatch.setenv(cached_step.RUN_CACHE, str(tmp_path / "shelf"))
    run_task("prepare", arguments(tmp_path))
    said = capsys.readouterr().err
    for work in ("opening", "fetching it from", "saving it to"):
        assert f"[bm25] still {work} the run cache (" in said


def test_quiet_mode_writes_nothing(
    tmp_path: Path,
    ran: list[str],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    slow(task, "link_or_copy", monkeypatch)
    monkeypatch.setenv(QUIET, "1")
    run_task("prepare", arguments(tmp_path))
    assert capfd.readouterr() == ("", "")


def test_nothing_is_added_to_the_lines_of_several_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def started(words: list[str], check: bool) -> subprocess.CompletedProcess[str]:
        time.sleep(3.5 * SOON)  # not a multiple: the watch would look just as it ends
        return subprocess.CompletedProcess(words, 1)

    monkeypatch.setattr(several_processes.subprocess, "run", started)
    step = find_step("encode")
    with watched("index"), pytest.raises(CrashElsewhere):
        several_processes.execute_together(step, build(step.config, {}, "test"), {}, {"vectors": tmp_path}, 2)
    assert capsys.readouterr().err == ""
