"""Restarting `stillhouse search`: files checked before are not read again, and changed files are refused."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from indexed_corpora import FP32, Run
from read_files import noted_reads
from silence import slow, talk_soon

from stillhouse import cli
from stillhouse.core import file_stamps
from stillhouse.core.artifacts import digest_file
from stillhouse.core.context import QUIET, work_root
from stillhouse.search import searcher


@pytest.fixture
def words(run_step: Run, small_corpus: Path, retriever: Path) -> list[str]:
    """Return a search command line with its own folders."""
    index = run_step("index", {"corpus": small_corpus, "retriever": retriever}, **FP32)["index"]
    folders = ["--corpus", str(small_corpus), "--retriever", str(retriever), "--index", str(index)]
    return ["search", "where does the red bird sing", *folders]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    time.sleep(0.02)  # a tick of the clock
    return noted_reads(monkeypatch)


def damaged(path: Path) -> None:
    """Change a byte, but keep the size and restore the modification time."""
    time.sleep(0.02)
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_a_second_start_reads_no_file_for_its_digest(
    words: list[str], read: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 0
    assert {"passages.parquet", "index.faiss", "model.safetensors"} <= set(read)
    first, before = capsys.readouterr().out, len(read)
    assert cli.main(words) == 0
    assert len(read) == before and capsys.readouterr().out == first
    assert cli.main([*words, "--verify"]) == 0
    assert len(read) == 2 * before
    assert (work_root() / file_stamps.FILE).is_file()


@pytest.mark.parametrize("file", ["index.faiss", "ids.parquet", "index.json"])
@pytest.mark.parametrize("flags", [[], ["--verify"]])
def test_a_file_that_was_damaged_since_is_refused(
    words: list[str], read: list[str], file: str, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 0
    damaged(Path(words[-1], file))
    capsys.readouterr()
    assert cli.main([*words, *flags]) == 2
    assert f"{words[-1]}: {file} changed after it was written" in capsys.readouterr().err


def test_verify_finds_what_left_no_trace(words: list[str], read: list[str]) -> None:
    """This imitates a file system without change times: the stored stamps say that the file is unchanged."""
    assert cli.main(words) == 0
    index, memory = Path(words[-1], "index.faiss"), work_root() / file_stamps.FILE
    sound = digest_file(index)
    damaged(index)
    stamp, _ = file_stamps._stamp(index)
    memory.write_text(json.dumps(json.loads(memory.read_text()) | {stamp: sound}))
    assert cli.main(words) == 0
    assert cli.main([*words, "--verify"]) == 2


def test_a_search_is_not_silent_and_keeps_its_answers_clean(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither while it opens large folders nor while it answers. Its reader may be a program."""
    talk_soon(monkeypatch)
    for name in ("read_manifest", "check_index", "refuse_not_finite"):
        slow(searcher, name, monkeypatch)
    assert cli.main([*words, "--json"]) == 0
    found = capsys.readouterr()
    for work in ("verifying the digests of its inputs", "at work", "searching"):
        assert f"[search] still {work} (" in found.err
    assert [json.loads(line)["question"] for line in found.out.splitlines()] == [words[1]]
    assert cli.main([*words, "--json", "--quiet"]) == 0
    assert capsys.readouterr() == (found.out, "")
    monkeypatch.setenv(QUIET, "1")
    assert cli.main([*words, "--json"]) == 0
    assert capsys.readouterr() == (found.out, "")
