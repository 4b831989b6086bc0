"""Ingestion keeps no passages in memory: memory per passage, digests, blocks, and the files after a kill."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillhouse.corpus.cleaning import clean
from stillhouse.corpus.digest_numbers import DigestNumbers, digests_of
from stillhouse.corpus.sources.rows import Passage

IDS = st.lists(st.lists(st.sampled_from([f"p{n}" for n in range(40)]), max_size=30), max_size=12)


@settings(max_examples=80, deadline=None)
@given(IDS)
def test_digest_numbers_equal_those_of_a_dictionary(blocks: list[list[str]]) -> None:
    numbers, slow = DigestNumbers(), dict[str, int]()
    for block in blocks:
        assert numbers.find(digests_of(block)).tolist() == [slow.get(id, -1) for id in block]
        assert numbers.add(digests_of(block)).tolist() == [slow.setdefault(id, len(slow)) for id in block]
    assert len(numbers) == len(slow)


def rows(count: int, words: int = 60) -> Iterator[Passage]:
    """Yield passages of about 300 characters with different ids, titles and articles."""
    for number in range(count):
        text = f"{number:05d}" * words
        yield Passage(f"p{number}", f"title {number}", text, f"a{number}", f"section {number}", 0, f"c:{number}")


def slow_clean(given: list[Passage]) -> tuple[list[Passage], list[tuple[str, str]]]:
    """Return the passages that a dictionary of all passages would take, and the rejects."""
    taken: dict[str, Passage] = {}
    rejected = []
    for row in given:
        first = taken.setdefault(row.id, row)
        if not row.text.strip():
            raise AssertionError("no empty passages here")
        if first is not row:
            same = (first.title, first.text) == (row.title, row.text)
            rejected.append((row.where, "duplicate id, same text" if same else "duplicate id, different text"))
    return list(taken.values()), rejected


@pytest.mark.parametrize("on_disk", [False, True])
def test_duplicates_near_and_far_are_those_of_a_slow_look_up(on_disk: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ids, texts = rng.integers(0, 3000, 5000), rng.integers(0, 2, 5000)
    # The same letters, divided differently into title and text, must count as a different text.
    contents = [("ab", "c"), ("a", "bc")]
    given = [Passage(f"p{i}", *contents[t], f"a{i}", "", 0, str(n)) for n, (i, t) in enumerate(zip(ids, texts))]
    corpus = clean(given, tmp_path / "passages.parquet" if on_disk else None)
    taken, rejected = slow_clean(given)
    assert [row._replace(where="") for row in taken] == list(corpus.passages.values())
    assert [(row.where, row.reason) for row in corpus.rejected] == rejected
    assert corpus.passages.articles == len({row.article_id for row in taken})
    asked = ["p1", "none", *(row.id for row in taken[:50])]
    places = {row.id: place for place, row in enumerate(taken)}
    assert corpus.passages.rows_of(asked).tolist() == [places.get(id, -1) for id in asked]
    chosen = rng.integers(0, len(taken), 70)
    assert corpus.passages.texts_of(chosen) == [taken[place].text for place in chosen]


PEAK = """
import sys, tracemalloc
from pathlib import Path
import pyarrow as pa
sys.path.insert(0, {tests!r})
from test_bounded_ingestion import rows
from stillhouse.corpus import table_file
from stillhouse.corpus.cleaning import clean
table_file.ROW_GROUP = 1 << 12
tracemalloc.start()
corpus = clean(rows({count}), Path(sys.argv[1]))
assert len(corpus.passages) == {count}
print(tracemalloc.get_traced_memory()[1] + pa.default_memory_pool().max_memory())
"""


def test_memory_per_passage_is_bounded(tmp_path: Path) -> None:
    """Measure the peak of Python, NumPy and Arrow at two sizes above a row group; a passage has 400 bytes."""
    counts = (10_000, 30_000)
    peaks = []
    for count in counts:
        code = PEAK.format(tests=str(Path(__file__).parent), count=count)
        command = [sys.executable, "-c", code, str(tmp_path / "passages.parquet")]
        peaks.append(int(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
    growth = (peaks[1] - peaks[0]) / (counts[1] - counts[0])
    assert 16 < growth < 150, f"{growth:.0f} bytes a passage"
