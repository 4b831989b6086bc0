"""Outputs appear completely or not at all: a kill, a full disk, a file that changed afterwards."""

from __future__ import annotations

import errno
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from beir_source import write_beir

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.pipeline.steps import ingest, validate
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.spec import Paths, Port, Report, Step


def write_source(folder: Path, passages: int) -> Path:
    return write_beir(folder, [f"text {i}" for i in range(passages)])


def run(source: Path, output: Path) -> None:
    execute(ingest.STEP, ingest.STEP.config(source=str(source)), {}, {"corpus": output})


def state(folder: Path) -> dict[str, bytes] | None:
    return {path.name: path.read_bytes() for path in folder.iterdir()} if folder.is_dir() else None


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
