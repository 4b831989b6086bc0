"""Ctrl-C ends every step within ten seconds, whatever it is doing, with exit code 130 and one sentence.

It leaves the same as a kill: outputs that are complete or absent, and work that the next run continues.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from kills import SEED
from micro_uses import FORKS, RUN_USES, settings_of
from processes import lives
from test_killed_steps import content

from stillhouse import cli
from stillhouse.core import interrupt
from stillhouse.kubeflow.pods.several_processes import step_words
from stillhouse.pipeline.graph import Use
from stillhouse.pipeline.steps import registry
from stillhouse.pipeline.steps.spec import Report

MOST = 10.0
"""Seconds from the signal to the end of the process."""


def call(words: list[str], work: Path, log: Path, ready: Any) -> None:
    """Run a command line in this process, as from a terminal; its log goes to a file."""
    os.environ["STILLHOUSE_WORK"] = str(work)
    os.environ.pop("STILLHOUSE_QUIET", None)
    from stillhouse.training import loop

    loop.SECONDS_BETWEEN_CHECKPOINTS = 0.0
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # even if the tests' caller ignores it
    ready.set()
    raise SystemExit(cli.main(words))


def begin(target: Any, *words: Any) -> BaseProcess:
    """Start a process that is about to run a command."""
    ready = FORKS.Event()
    process = FORKS.Process(target=target, args=(*words, ready))
    process.start()
    assert ready.wait(300)
    return process


def press(process: BaseProcess) -> float:
    """Sends SIGINT and returns the seconds that the process took to end."""
    assert process.pid
    started = time.monotonic()
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGINT)
    process.join(30)
    took = time.monotonic() - started
    if process.exitcode is None:
        process.kill()
        pytest.fail("it goes on")
    return took


def words_of(use: Use, root: Path, outputs: Path) -> list[str]:
    return step_words(use.step, settings_of(use, root), use.input_paths(root), use.output_paths(outputs))


def sentence(log: Path) -> None:
    """Check that the log ends with the one sentence and has no traceback."""
    said = log.read_text()
    assert said.count(interrupt.SENTENCE) == 1 and said.endswith(f"{interrupt.SENTENCE}\n"), said
    assert "Traceback" not in said and "Exception ignored" not in said, said


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Other processes keep the processor busy."""
    spinning = [FORKS.Process(target=spin, daemon=True) for _ in range(processes)]
    for process in spinning:
        process.start()
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.join()


def spin() -> None:
    while True:
        pass


FEW = ("ingest", "pretraining", "retriever_1")
"""Uses that `make test` interrupts. The others take time and are similar."""


def uses() -> Iterator[object]:
    for use in RUN_USES:
        yield pytest.param(use, marks=[] if use.name in FEW else [pytest.mark.long], id=use.name)


@pytest.mark.slow
@pytest.mark.parametrize("use", uses())
def test_an_interrupted_step_ends_soon_and_resumes_to_the_same_bytes(
    use: Use, calm: tuple[Path, dict[str, float]], tmp_path: Path
) -> None:
    root, seconds = calm
    outputs, work, log = tmp_path / "artifacts", tmp_path / "work", tmp_path / "log"
    chance, landed = random.Random(f"{SEED} interrupt {use.name}"), 0
    with busy(2 * (os.cpu_count() or 1)) if use.name == "retriever_1" else contextlib.nullcontext():
        for attempt in range(6):
            process = begin(call, words_of(use, root, outputs), work, log)
            # The calm run may have loaded libraries that these find loaded: after a late try, the next comes sooner.
            time.sleep(chance.uniform(0, seconds[use.name] / 2 ** (1 + attempt - landed)))
            took = press(process)
            assert process.exitcode in (0, interrupt.INTERRUPTED), log.read_text()
            assert took < MOST
            for path in use.output_paths(outputs).values():
                assert not path.exists() or content(path) == content(root / path.relative_to(outputs))
            if process.exitcode:
                sentence(log)
                landed += 1
            if landed == 2:
                break
    process = begin(call, words_of(use, root, outputs), work, log)
    process.join()
    assert process.exitcode == 0
    for path in use.output_paths(outputs).values():
        assert content(path) == content(root / path.relative_to(outputs)), path.name
    assert not list(outputs.rglob(".*")), "leftovers"
    assert landed, f"seed {SEED}: it was done before"


def hang_in_c() -> None:
    """Lock a mutex twice: no signal wakes it, and Python's own lock stays free."""
    mutex = ctypes.create_string_buffer(64)
    lock = ctypes.CDLL(None).pthread_mutex_lock
    lock(mutex)
    lock(mutex)


def hang_in_a_pool() -> None:
    """The pool waits for its thread when it ends."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(hang_in_c)
        time.sleep(600)


def hang_at_the_end() -> None:
    """The process waits for a thread at its end, after its last log line."""
    threading.Thread(target=hang_in_c).start()
    time.sleep(600)


def hang_in_a_library() -> None:
    """Like a library that catches everything and tries again."""
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(600)


def hang_with_a_child() -> None:
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    child.start()
    Path("child").write_text(str(child.pid))
    hang_in_c()


def fail_in_other_words() -> None:
    """Like a library that turns any failure into an error of its own."""
    try:
        time.sleep(600)
    except KeyboardInterrupt:
        raise ValueError("the worker was lost") from None


def take_no_notice() -> None:
    with contextlib.suppress(KeyboardInterrupt):
        time.sleep(600)


def call_stand_in(work: Any, folder: Path, grace: float, ready: Any) -> None:
    """Run the command of a step that does `work`."""
    os.chdir(folder)
    interrupt.GRACE = grace

    def run(config: Any, inputs: Any, outputs: Any, context: Any) -> Report:
        (outputs["corpus"] / "file").write_text("half")
        Path("at-work").touch()
        work()
        return Report("done")

    registry.steps()["ingest"] = dataclasses.replace(registry.steps()["ingest"], run=run)
    call(["ingest", "--corpus", "out"], folder / "work", folder / "log", ready)


def at_work(work: Any, folder: Path, grace: float, target: Any = call_stand_in) -> BaseProcess:
    process = begin(target, work, folder, grace)
    until = time.monotonic() + 60
    while not (folder / "at-work").exists():
        assert time.monotonic() < until and process.is_alive()
        time.sleep(0.01)
    time.sleep(0.2)
    return process


@pytest.mark.parametrize(
    "work", [hang_in_c, hang_in_a_pool, hang_at_the_end, hang_in_a_library, hang_with_a_child, fail_in_other_words]
)
def test_work_that_ignores_the_interrupt_is_ended(work: Any, tmp_path: Path) -> None:
    process = at_work(work, tmp_path, grace=1.0)
    assert press(process) < MOST
    assert process.exitcode == interrupt.INTERRUPTED
    sentence(tmp_path / "log")
    assert not (tmp_path / "out").exists()
    if work is hang_with_a_child:
        until = time.monotonic() + 30
        while lives(int((tmp_path / "child").read_text())):
            assert time.monotonic() < until, "it works on"
            time.sleep(0.1)


def run_task(log: Path, ready: Any) -> None:
    """Run a task of a Kubeflow pipeline, which `pipeline run-local` starts as a local process."""
    from stillhouse.kubeflow.pods.in_pod import watched_task

    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupt.GRACE = 1.0
    with watched_task("gate"):
        ready.set()
        hang_in_c()


def test_a_task_of_a_local_run_ends_too(tmp_path: Path) -> None:
    process = begin(run_task, tmp_path / "log")
    time.sleep(0.5)
    assert press(process) < MOST
    assert process.exitcode == interrupt.INTERRUPTED
    sentence(tmp_path / "log")


def test_a_second_ctrl_c_ends_at_once(tmp_path: Path) -> None:
    process = at_work(hang_in_c, tmp_path, grace=600)
    assert process.pid
    os.kill(process.pid, signal.SIGINT)
    time.sleep(0.1)
    os.kill(process.pid, signal.SIGINT)  # the same press, passed on by another program
    process.join(1)
    assert process.exitcode is None
    assert press(process) < MOST
    assert process.exitcode == interrupt.INTERRUPTED
    sentence(tmp_path / "log")


def test_a_step_that_finishes_within_the_grace_succeeds(tmp_path: Path) -> None:
    """A step that ignores the signal and finishes in time has finished."""
    process = at_work(take_no_notice, tmp_path, grace=600)
    press(process)
    assert process.exitcode == 0
    assert (tmp_path / "out" / "manifest.json").is_file()
