"""Opening a search: damaged files are refused, and the log says what is done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from indexed_corpora import FP32, Run
from silence import slow, talk_soon

from stillhouse import cli
from stillhouse.core.context import QUIET
from stillhouse.search import searcher


@pytest.fixture
def words(run_step: Run, small_corpus: Path, retriever: Path) -> list[str]:
    """Return a search command line with its own folders."""
    index = run_step("index", {"corpus": small_corpus, "retriever": retriever}, **FP32)["index"]
    folders = ["--corpus", str(small_corpus), "--retriever", str(retriever), "--index", str(index)]
    return ["search", "where does the red bird sing", *folders]


@pytest.mark.parametrize("file", ["index.faiss", "ids.parquet", "index.json"])
def test_a_damaged_file_is_refused(words: list[str], file: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(words[-1], file)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert cli.main(words) == 2
    assert f"{words[-1]}: {file} changed after it was written" in capsys.readouterr().err


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
