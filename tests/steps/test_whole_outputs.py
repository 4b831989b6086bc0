"""Outputs appear whole or not at all: a killed process, a full disk, a file that changed afterwards."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from stillhouse.artifacts import read_manifest
from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.errors import InputError
from stillhouse.steps import ingest, validate
from stillhouse.steps.execute import execute
from stillhouse.steps.spec import Paths, Port, Report, Step

# Runs ingest and stops for ever in the middle of the third row group, before its table has an end.
STUCK = """
import sys, time
from pathlib import Path
import pyarrow.parquet as pq
from stillhouse.steps import ingest
from stillhouse.steps.execute import execute

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


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path / "work"))


def write_source(folder: Path, passages: int) -> Path:
    folder.mkdir(exist_ok=True)
    rows = (json.dumps({"_id": f"p{i}", "text": f"text {i}"}) + "\n" for i in range(passages))
    (folder / "corpus.jsonl").write_text("".join(rows))
    return folder


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
    real, written = pq.ParquetWriter.write_table, []

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
    """What stops a test's process where a kill would."""


@pytest.mark.parametrize("old", [("one", "two"), ("one",), ("two",), ()])
@pytest.mark.parametrize("done", range(5))
def test_a_new_output_is_never_beside_an_old_one(
    done: int, old: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step is killed after so many renames; neither then nor after a run that fails do both sorts lie there."""
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
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two", "work"]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("passages.parquet", lambda path: path.write_bytes(path.read_bytes()[:-7])),
        ("queries.parquet", lambda path: path.write_bytes(path.read_bytes() + b"x")),
        ("qrels.parquet", lambda path: path.unlink()),
        ("extra.parquet", lambda path: path.write_bytes(b"x")),
    ],
)
def test_a_changed_output_is_refused_by_name(name: str, damage: Any, tmp_path: Path) -> None:
    source, output = write_source(tmp_path / "source", 3), tmp_path / "corpus"
    run(source, output)
    damage(output / name)
    with pytest.raises(InputError, match=f"{name} changed .* run step 'ingest' again"):
        execute(validate.STEP, validate.Config(), {"corpus": output}, {"validation": tmp_path / "validation"})
    assert not (tmp_path / "validation").exists()
    run(source, output)
    execute(validate.STEP, validate.Config(), {"corpus": output}, {"validation": tmp_path / "validation"})
