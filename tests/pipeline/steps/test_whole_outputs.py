"""Outputs appear completely or not at all: a killed process, a full disk, a file that changed afterwards."""

from __future__ import annotations

import errno
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from beir_source import write_beir

from stillhouse.core.artifacts import digest_files, read_manifest
from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.models.cross_encoder import CrossEncoder
from stillhouse.models.pair_scores import ScoreLog
from stillhouse.pipeline.steps import ingest, validate
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.registry import find_step
from stillhouse.pipeline.steps.spec import Paths, Port, Report, Step
from stillhouse.search import corpus_encoding
from stillhouse.training import checkpoint, loop

# Runs ingest and hangs after the third row group, before the table is complete.
STUCK = """
import sys, time
from pathlib import Path
import pyarrow.parquet as pq
from stillhouse.pipeline.steps import ingest
from stillhouse.pipeline.steps.execute import execute

source, output, flag = sys.argv[1:]
real, calls = pq.ParquetWriter.write_table, []

def stuck(writer, table, **options):
    real(writer, table, **options)
    calls.append(len(table))
    if len(calls) == 3:
        Path(flag).touch()
        time.sleep(600)

pq.ParquetWriter.write_table = stuck
execute(ingest.STEP, ingest.Config(source=source), {}, {"corpus": Path(output)})
"""


def write_source(folder: Path, passages: int) -> Path:
    return write_beir(folder, [f"text {i}" for i in range(passages)])


def run(source: Path, output: Path) -> None:
    execute(ingest.STEP, ingest.Config(source=str(source)), {}, {"corpus": output})


def state(folder: Path) -> dict[str, bytes] | None:
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.is_dir() else None


def kill_in_the_middle(source: Path, output: Path) -> None:
    flag = output.parent / "writing"
    arguments = [sys.executable, "-c", STUCK, str(source), str(output), str(flag)]
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not flag.exists():
            assert process.poll() is None, "the process ended before it wrote the third table"
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("existing", [False, True])
def test_a_killed_process_leaves_the_old_output_or_none(existing: bool, tmp_path: Path) -> None:
    source, output = write_source(tmp_path / "source", 3), tmp_path / "corpus"
    if existing:
        run(source, output)
    before = state(output)
    write_source(source, 5)
    kill_in_the_middle(source, output)
    assert state(output) == before
    if existing:
        assert read_manifest(output).facts["passages"] == 3
    run(source, output)
    assert read_manifest(output).facts["passages"] == 5
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("full_after", [0, 2, 5])
def test_a_full_disk_leaves_the_old_output_or_none(
    existing: bool, full_after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = write_source(tmp_path / "source", 3), tmp_path / "corpus"
    if existing:
        run(source, output)
    before = state(output)
    write_source(source, 5)
    real = pq.ParquetWriter.write_table
    written: list[int] = []

    def full(writer: Any, table: Any, **options: Any) -> None:
        if len(written) == full_after:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(len(table))
        real(writer, table, **options)

    with monkeypatch.context() as patch:
        patch.setattr(pq.ParquetWriter, "write_table", full)
        with pytest.raises(OSError, match="No space left"):
            run(source, output)
    assert state(output) == before
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    run(source, output)
    assert read_manifest(output).facts["passages"] == 5


PROGRESS = {
    "a checkpoint": (
        "train-retriever",
        {"max_steps": 3, "batch_size": 4, "negatives_per_query": 1, "negatives_depth": 6, "eval_steps": 9},
        (checkpoint._Hashed, "write"),
    ),
    "a segment of vectors": ("encode", {}, (np.lib.format, "write_array")),
    "a log of scores": ("score-pairs", {"batch_tokens": 128}, (ScoreLog, "add")),
}
"""Work that survives a run that ends early: the step that keeps it, its settings, and the function that writes it."""


@pytest.mark.parametrize("kind", PROGRESS)
def test_a_disk_that_fills_up_keeps_the_old_output_and_the_work(
    kind: str,
    small_corpus: Path,
    tiny_model: Path,
    tmp_path: Path,
    run_step: Callable[..., dict[str, Path]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr(corpus_encoding, "BLOCK", 4)
    name, settings, (owner, write) = PROGRESS[kind]
    CrossEncoder.start(tiny_model, 32).save(tmp_path / "reranker")
    negatives = run_step("bm25", {"corpus": small_corpus}, negatives_depth=6)["negatives"]
    given = {"corpus": small_corpus, "negatives": negatives, "reranker": tmp_path / "reranker"}
    given |= {"encoder": tiny_model, "retriever": tiny_model}
    ports = [port for port in find_step(name).inputs if port.name in given]
    inputs = {port.name: given[port.name] for port in ports if not port.optional or port.name == "reranker"}
    real = getattr(owner, write)

    def run(into: str, room: float = math.inf, **other: str) -> tuple[dict[str, Path], int]:
        """Run the step on a disk with room for `room` writes, and return its outputs and the number of writes."""
        writes = 0

        def limited(*words: Any, **named: Any) -> Any:
            nonlocal writes
            if writes >= room:
                raise OSError(errno.ENOSPC, "No space left on device")
            writes += 1
            return real(*words, **named)

        with monkeypatch.context() as patch:
            patch.setenv("STILLHOUSE_WORK", str(tmp_path / f"work of {into}"))
            patch.setattr(owner, write, limited)
            return run_step(name, inputs, into, **{"precision": "fp32", **settings, **other}), writes

    calm, writes = run("calm")
    old, _ = run("again", precision="bf16")
    before = {port: digest_files(folder) for port, folder in old.items()}
    with pytest.raises(OSError, match="No space left") as error:
        run("again", room=writes * 3 // 4)
    assert error.value.errno == errno.ENOSPC, "by which the command line and the components know a full disk"
    assert {port: digest_files(folder) for port, folder in old.items()} == before
    assert sorted(path.name for path in (tmp_path / "again").iterdir()) == sorted(old)
    outputs, left = run("again")
    assert 0 < left < writes
    assert {port: digest_files(outputs[port]) for port in calm} == {port: digest_files(calm[port]) for port in calm}


@dataclass(frozen=True, kw_only=True)
class Text:
    text: str = setting("", "what both outputs hold")


def write_both(config: Text, inputs: Paths, outputs: Paths, context: Context) -> Report:
    if config.text == "broken":
        raise RuntimeError("broken")
    for folder in outputs.values():
        (folder / "text").write_text(config.text)
    return Report("done")


PAIR = Step("pair", "writes two folders", Text, (), (Port("one", "one"), Port("two", "two")), write_both)


class Killed(BaseException):
    """Stops a step where a kill would."""


@pytest.mark.parametrize("old", [("one", "two"), ("one",), ("two",), ()])
@pytest.mark.parametrize("done", range(5))
def test_a_new_output_is_never_beside_an_old_one(
    done: int, old: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step is killed after `done` renames: old and new outputs never exist together, even after a failed run."""
    outputs = {name: tmp_path / name for name in ("one", "two")}
    execute(PAIR, Text(text="old"), {}, outputs)
    for name in outputs.keys() - set(old):
        shutil.rmtree(outputs[name])
    real = Path.rename
    renamed: list[Path] = []

    def rename(path: Path, target: Path) -> Path:
        if len(renamed) == done:
            raise Killed
        renamed.append(target)
        return real(path, target)

    def there() -> dict[str, str]:
        return {name: (path / "text").read_text() for name, path in outputs.items() if path.is_dir()}

    with monkeypatch.context() as patch, suppress(Killed):
        patch.setattr(Path, "rename", rename)
        execute(PAIR, Text(text="new"), {}, outputs)
    left = there()
    assert len(set(left.values())) <= 1 and (done > 0 or left == dict.fromkeys(old, "old"))
    with pytest.raises(RuntimeError):
        execute(PAIR, Text(text="broken"), {}, outputs)
    assert len(set(there().values())) <= 1 and there().items() >= left.items()
    execute(PAIR, Text(text="new"), {}, outputs)
    assert there() == {"one": "new", "two": "new"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]


def test_a_foreign_file_in_an_output_is_neither_read_nor_lost(tmp_path: Path) -> None:
    source, output = write_source(tmp_path / "source", 3), tmp_path / "corpus"
    run(source, output)
    (output / "extra.parquet").write_bytes(b"x")
    with pytest.raises(InputError, match=r"holds extra\.parquet, which no step wrote; move it away"):
        execute(validate.STEP, validate.Thresholds(), {"corpus": output}, {"validation": tmp_path / "validation"})
    with pytest.raises(InputError, match=r"holds extra\.parquet, which no step wrote; move it away"):
        run(source, output)
    (output / "extra.parquet").rename(tmp_path / "extra.parquet")
    run(source, output)
    assert (tmp_path / "extra.parquet").read_bytes() == b"x"
