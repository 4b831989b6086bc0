"""Two processes on one folder: the first works, the second reports it; a killed process keeps nobody out."""

from __future__ import annotations

import json
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
from held_folders import SPAWN, held

from stillhouse.core.artifacts import read_manifest, whole_folder
from stillhouse.core.config import build
from stillhouse.core.errors import InputError
from stillhouse.core.lock import only_process
from stillhouse.corpus.store import Corpus
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.registry import find_step
from stillhouse.pipeline.steps.spec import Report


def add_one(folder: Path, counter: Path, times: int) -> None:
    """Adds 1 to a number again and again, and holds the folder each time."""
    done = 0
    while done < times:
        try:
            with only_process(folder):
                counter.write_text(str(int(counter.read_text()) + 1))
                done += 1
        except InputError:
            continue


@pytest.mark.parametrize("end", ["ends", "is killed"])
def test_a_second_process_is_refused_until_the_first_one_finishes(end: str, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    with held(folder) as (process, talk):
        with pytest.raises(InputError, match=r"another process is writing .*corpus; wait"), whole_folder(folder):
            pytest.fail("two processes write one folder")
        talk.send("enough") if end == "ends" else process.kill()
        process.join()
        with whole_folder(folder) as staging:
            (staging / "file").write_text("whole")
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]


def test_the_second_process_waits_where_it_may(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    said: list[str] = []
    with held(folder) as (_, talk):

        def say(line: str) -> None:
            said.append(line)
            talk.send("enough")

        with only_process(folder, wait=say):
            assert len(said) == 1 and "another process is working in" in said[0]


def test_many_processes_never_hold_a_folder_together(tmp_path: Path) -> None:
    folder, counter = tmp_path / "work", tmp_path / "counter"
    counter.write_text("0")
    processes = [SPAWN.Process(target=add_one, args=(folder, counter, 300)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert counter.read_text() == "900"


def ingest(place: Path, heap: str, talk: Connection | None) -> None:
    """Run the step `ingest` on one of two sources. With `talk` it waits for a message in the middle of its work."""
    step = find_step("ingest")

    def run(*words: Any) -> Report:
        report = step.run(*words)
        if talk:
            talk.send("at work")
            talk.recv()
        return report

    config = build(step.config, {"source": str(place / f"{heap}.jsonl"), "format": "jsonl"}, "ingest")
    execute(replace(step, run=run), config, {}, {"corpus": place / "corpus"})


@pytest.mark.parametrize("end", ["ends", "is killed"])
def test_two_steps_that_write_one_output(end: str, tmp_path: Path) -> None:
    """The other step gets an error and writes nothing."""
    for heap in ("one", "two"):
        row = {"_id": heap, "title": heap, "text": f"the text of {heap}"}
        (tmp_path / f"{heap}.jsonl").write_text(json.dumps(row) + "\n")
    mine, its = SPAWN.Pipe()
    process = SPAWN.Process(target=ingest, args=(tmp_path, "one", its))
    process.start()
    assert mine.recv() == "at work"
    with pytest.raises(InputError, match=r"another process is writing .*corpus; wait until it ends"):
        ingest(tmp_path, "two", None)
    assert not (tmp_path / "corpus").exists()
    mine.send("enough") if end == "ends" else process.kill()
    process.join()
    if end == "is killed":
        assert not (tmp_path / "corpus").exists()
        ingest(tmp_path, "two", None)
    written = list(Corpus.open(tmp_path / "corpus").passages["passage_id"])
    assert written == (["one"] if end == "ends" else ["two"])
    read_manifest(tmp_path / "corpus")
