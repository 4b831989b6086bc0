"""Ctrl-C ends a command with exit code 130 and one sentence, and leaves outputs whole or absent."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from micro_steps import FORKS

from stillhouse import cli
from stillhouse.core.errors import INTERRUPTED, INTERRUPTION
from stillhouse.kubeflow.pods.in_pod import watched_task
from stillhouse.pipeline.steps import registry


def ingest(at_work: Any) -> int:
    def run(config: Any, inputs: Any, outputs: Any, context: Any) -> Any:
        (outputs["corpus"] / "file").write_text("half")
        at_work.set()
        time.sleep(600)

    registry.steps()["ingest"] = dataclasses.replace(registry.steps()["ingest"], run=run)
    return cli.main(["ingest", "--corpus", "out"])


def task(at_work: Any) -> int:
    """A task of a Kubeflow pipeline, which `pipeline run-local` starts as a local process."""
    with watched_task("gate"):
        at_work.set()
        time.sleep(600)
    return 0


def begin(work: Any, folder: Path, at_work: Any) -> None:
    os.chdir(folder)
    os.environ.pop("STILLHOUSE_QUIET", None)
    with Path("log").open("wb") as file:
        os.dup2(file.fileno(), 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # even if the tests' caller ignores it
    raise SystemExit(work(at_work))


@pytest.mark.parametrize("work", [ingest, task])
def test_an_interrupted_command_says_so_and_leaves_no_half_output(work: Any, tmp_path: Path) -> None:
    at_work = FORKS.Event()
    process = FORKS.Process(target=begin, args=(work, tmp_path, at_work))
    process.start()
    try:
        assert at_work.wait(300) and process.pid
        os.kill(process.pid, signal.SIGINT)
        process.join(300)
        assert process.exitcode == INTERRUPTED
    finally:
        process.kill()
    said = (tmp_path / "log").read_text()
    assert said.count(INTERRUPTION) == 1 and said.endswith(f"{INTERRUPTION}\n") and "Traceback" not in said
    assert not (tmp_path / "out").exists()
