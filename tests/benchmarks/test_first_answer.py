"""The benchmark of the first answer, made to run in seconds: a row for each start, with or without known digests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from stillhouse.file_stamps import FILE

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def test_there_is_a_row_for_every_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_model: Path) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import first_answer

    started: list[tuple[bool, bool]] = []

    def timed(words: Sequence[str]) -> tuple[float, float]:
        started.append(((tmp_path / "work" / FILE).exists(), "--verify" in words))
        (tmp_path / "work" / FILE).touch()
        return 1.0, 0.5

    monkeypatch.setattr(first_answer, "timed", timed)
    monkeypatch.setattr(first_answer, "SETTLED", -1.0)
    monkeypatch.setattr(first_answer, "sample", lambda folder, retriever: folder)
    monkeypatch.setenv("STILLHOUSE_WORK", "")
    monkeypatch.setenv("STILLHOUSE_QUIET", "1")
    small = ["--folder", str(tmp_path), "--passages", "50", "--rounds", "1", "--model", str(tiny_model)]
    assert first_answer.main([*small, "--page", str(tmp_path / "page.md")]) == 0
    table = [line.split("|") for line in (tmp_path / "page.md").read_text().splitlines() if line.startswith("|")][2:]
    corpora = [corpus for corpus in ("the sample", "the sample, with BM25", "50 passages") for _ in range(3)]
    assert [row[1].strip() for row in table] == [*corpora, "none"]
    assert [row[3].strip() for row in table] == ["1.00"] * 10
    of_each = [(False, False), (True, False), (True, True)]
    assert started == [*of_each, *of_each, *of_each, (True, False)]
    words = ["search", "what", "is", "it", "--corpus", str(tmp_path / "50" / "corpus"), "--json"]
    words += ["--index", str(tmp_path / "50" / "index"), "--retriever", str(tmp_path / "model" / "encoder")]
    from stillhouse import cli

    assert cli.main(words) == 0  # the command that the page times gives an answer
