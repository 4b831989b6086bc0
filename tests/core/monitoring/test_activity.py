"""Progress in a log and on a terminal, and the lines that appear while a step is silent."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import subprocess
import sys
import termios
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from silence import SOON, slow, talk_soon

from stillhouse import cli
from stillhouse.core.context import QUIET, Context
from stillhouse.core.monitoring.activity import ELSEWHERE, doing, watched, write_line
from stillhouse.core.monitoring.bar import LogBar
from stillhouse.core.monitoring.monitor import SILENT
from stillhouse.corpus import first_look, ingestion
from stillhouse.pipeline import in_process, recipe_run, run_progress, step_times, workspace
from stillhouse.pipeline.graph import known_steps
from stillhouse.pipeline.recipes import configs, find_recipe, load_recipe
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.spec import Port, Report, Step


@pytest.fixture(autouse=True)
def talkative(monkeypatch: pytest.MonkeyPatch) -> None:
    talk_soon(monkeypatch)


@dataclass(frozen=True, kw_only=True)
class Config:
    """A step without settings."""


def run_step(work: Any, folder: Path) -> None:
    def run(config: Any, inputs: Any, outputs: Any, context: Context) -> Report:
        work(context)
        return Report("done")

    execute(Step("wait", "waits", Config, (), (Port("out", "nothing"),), run), Config(), {}, {"out": folder / "out"})


def wait_unnamed(context: Context) -> None:
    time.sleep(9 * SOON)


def wait_named(context: Context) -> None:
    with doing("waiting"):
        time.sleep(9 * SOON)


def wait_under_a_library(context: Context) -> None:
    """Wait with stderr redirected, which is how the progress bars of Great Expectations are hidden."""
    with contextlib.redirect_stderr(io.StringIO()), doing("waiting"):
        time.sleep(9 * SOON)


def wait_in_a_standing_bar(context: Context) -> None:
    with context.bar("counting", 100, "batch") as bar:
        bar.update(40)
        time.sleep(9 * SOON)


WORKS = {
    wait_unnamed: r"\[wait\] still at work \(\d+ s\)",
    wait_named: r"\[wait\] still waiting \(\d+ s\)",
    wait_under_a_library: r"\[wait\] still waiting \(\d+ s\)",
    wait_in_a_standing_bar: r"\[wait\] counting: 40 of 100 batches \(40 %\), \d s so far, about \d s left",
}


@pytest.mark.parametrize("work", WORKS)
def test_a_step_is_never_silent(work: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    run_step(work, tmp_path)
    monkeypatch.undo()
    found = [line for line in log.getvalue().splitlines() if re.fullmatch(WORKS[work], line)]
    assert len(found) >= 3, log.getvalue()


def test_quiet_mode_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(QUIET, "1")
    run_step(wait_in_a_standing_bar, tmp_path)
    assert capfd.readouterr() == ("", "")


def test_no_heartbeat_is_written_while_other_lines_appear(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("stillhouse.core.monitoring.activity.SILENCE", 2.0)  # a busy computer may pause for a second
    with watched("talk"), doing("talking"):
        for number in range(12):
            write_line(str(number))
            time.sleep(0.25)
    assert capsys.readouterr().err.split() == [str(number) for number in range(12)]


def test_the_innermost_work_of_the_watched_thread_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """Work in another thread, such as preparing batches ahead, is not reported: the step does not wait for it."""

    def beside() -> None:
        with doing("making batches ahead"):
            time.sleep(3 * SOON)

    with watched("step"), doing("outer"):
        with doing("inner"):
            thread = threading.Thread(target=beside)
            thread.start()
            thread.join()
        time.sleep(2 * SOON)
    said = capsys.readouterr().err
    assert "still inner" in said and "still outer" in said and "ahead" not in said
    assert said.index("still inner") < said.index("still outer")


def test_a_step_within_a_run_is_reported_by_its_own_name(capsys: pytest.CaptureFixture[str]) -> None:
    with watched("run"), doing("checking"):
        time.sleep(2 * SOON)
        with watched("index"):
            time.sleep(2 * SOON)
            with doing("encoding"):
                time.sleep(2 * SOON)
        time.sleep(2 * SOON)
    said = [line.rpartition(" (")[0] for line in capsys.readouterr().err.splitlines()]
    order = ["[run] still checking", "[index] still at work", "[index] still encoding", "[run] still checking"]
    assert [line for number, line in enumerate(said) if line != said[number - 1] or not number] == order


def test_other_processes_write_their_own_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with watched("step"), doing("starting them"):
        with doing(ELSEWHERE):
            time.sleep(3 * SOON)
            assert capsys.readouterr().err == ""
        time.sleep(3 * SOON)
    assert "[step] still starting them" in capsys.readouterr().err


def test_a_run_is_not_silent_between_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither while it verifies large inputs, nor while it looks for what is done and estimates its time."""
    monkeypatch.setenv("STILLHOUSE_DEVICE", "cpu")
    settings = configs(load_recipe(find_recipe("micro")), "micro")
    for module, name in ((in_process, "up_to_date"), (recipe_run, "still_to_do"), (run_progress, "scale_of")):
        slow(module, name, monkeypatch)
    slow(ingestion, "ingest_source", monkeypatch)
    recipe_run.run_recipe([known_steps({})["ingest"]], settings, tmp_path / "artifacts", tmp_path / "params.yaml")
    said = capsys.readouterr().err
    for work in ("checking which steps are up to date", "estimating the time", "checking whether ingest is up to date"):
        assert f"[run] still {work} (" in said
    assert "[ingest] still at work (" in said and "[run] still at work" not in said


def test_new_is_not_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STILLHOUSE_DEVICE", "cpu")
    step_times.model_speed.cache_clear()
    slow(first_look, "look_at", monkeypatch)
    slow(step_times, "speed", monkeypatch)
    slow(workspace, "render", monkeypatch)
    assert cli.main(["new", "work", "--source", "sample"]) == 0
    said = capsys.readouterr().err
    for work in ("inspecting the source", "measuring the speed of this machine", "at work"):
        assert f"[new] still {work} (" in said
    monkeypatch.setenv(QUIET, "1")
    assert cli.main(["new", "other", "--source", "sample"]) == 0 and not capsys.readouterr().err


def test_no_thread_stays_behind() -> None:
    with contextlib.suppress(ZeroDivisionError), watched("step"), doing("dividing"):
        raise ZeroDivisionError
    assert "activity" not in {thread.name for thread in threading.enumerate()}
    with watched("next"):
        assert "activity" in {thread.name for thread in threading.enumerate()}


def test_a_log_has_a_line_at_the_start_and_end_of_counted_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    context = Context(tmp_path)
    with context.bar("training", 4, "step", done=1) as bar:
        for _ in range(3):
            list(context.progress("ab", "held-out loss", unit="batch"))
            bar.update(1)
        bar.set_postfix(heldout="0.25")
    assert list(context.progress(iter("abc"), "reading", unit="row")) == ["a", "b", "c"]
    assert capsys.readouterr().err.splitlines() == [
        "training: 4 steps, 1 of them done before",
        "training: 4 steps done in 0 s, heldout 0.25",
        "reading: begins",
        "reading: 3 rows done in 0 s",
    ]


def test_time_left_counts_only_the_steps_of_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: 20 of 40 new steps took 60 s, so 60 s are left. The 60 steps of an earlier run do not count."""
    bar = LogBar("training", SILENT, 100, 60, "step", quiet=True)
    bar.n = 80
    bar.began = time.monotonic() - 60
    assert bar.line() == "training: 80 of 100 steps (80 %), 60 s so far, about 60 s left"


SHOWN = """
import time
from pathlib import Path
from stillhouse.core.context import Context
from stillhouse.core.monitoring import activity
from stillhouse.core.monitoring.activity import watched
activity.SILENCE = 0.2
context = Context(Path("work"))
with watched("step"):
    for item in context.progress(range(8), "counting"):
        time.sleep(1.0 if item == 4 else 0.12)
    context.log("a line")
"""


def test_a_terminal_has_a_bar_and_a_log_has_none(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != QUIET}
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (24, 80))
    terminal = subprocess.Popen([sys.executable, "-c", SHOWN], stderr=its, env=environment, cwd=tmp_path)
    os.close(its)
    shown = b""
    with contextlib.suppress(OSError):  # reading fails once the other end of the terminal is closed
        while part := os.read(ours, 4096):
            shown += part
    assert terminal.wait() == 0
    text = shown.decode()
    assert re.search(r"\rcounting: .*\d/8", text), text
    assert "[step] still counting" in text, "it stood still"
    assert re.search(r"a line\r?\n", text)

    log = subprocess.run([sys.executable, "-c", SHOWN], capture_output=True, env=environment, cwd=tmp_path, check=True)
    assert b"\r" not in log.stderr and b"\x1b" not in log.stderr
    assert b"[step] counting: 8 items\n" in log.stderr
    assert re.search(rb"\[step\] counting: 8 items done in \d+ s\na line\n", log.stderr)
    assert re.search(rb"\[step\] counting: [45] of 8 items", log.stderr)
