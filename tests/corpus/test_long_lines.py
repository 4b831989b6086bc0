"""A run file whose line is too long is refused by name and never read whole into memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from stillhouse.core.errors import InputError
from stillhouse.evaluation import runs
from stillhouse.evaluation.runs import read_run

LONGEST = 1 << 16
LONG = 40_000_000
"""Bytes of a line that is too long: six hundred times the limit."""
MOST = 8_000_000
"""Bytes of memory that reading may take: several times the limit, plus what any reading takes."""


def long_line(begin: bytes, end: bytes) -> Iterator[bytes]:
    yield begin
    for _ in range(LONG // 1_000_000):
        yield b"x" * 1_000_000
    yield end + b"\n"


def test_a_run_file_of_one_long_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "LONGEST_LINE", LONGEST)
    monkeypatch.setattr(runs, "READ_AT_ONCE", LONGEST)
    (tmp_path / "test.trec").write_bytes(b"".join(long_line(b"q Q0 ", b" 1 1 s")))
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=r"test.trec has a line of more than 65,536 bytes, so it is not a TREC"):
            read_run(tmp_path / "test.trec")
        assert tracemalloc.get_traced_memory()[1] < MOST
    finally:
        tracemalloc.stop()
