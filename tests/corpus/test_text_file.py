"""The texts of passages, read by row from a file."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillhouse.corpus.store import Corpus, open_passage_texts, passage_texts, write_tables
from stillhouse.corpus.table_file import TextFile

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)


@given(st.lists(st.lists(TEXT, max_size=4), max_size=5), st.data())
def test_any_rows_give_their_texts_in_the_same_shape(
    tmp_path_factory: pytest.TempPathFactory, blocks: list[list[str]], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("texts")
    texts, everything = TextFile(blocks, folder), [text for block in blocks for text in block]
    assert len(texts) == len(everything)
    rows = data.draw(st.lists(st.integers(0, len(everything) - 1), max_size=6)) if everything else []
    assert texts[np.array(rows, dtype=np.int32)].tolist() == [everything[row] for row in rows]
    pairs = np.array(rows * 2, dtype=np.int64).reshape(2, -1)
    assert texts[pairs].shape == pairs.shape and texts[pairs][1].tolist() == [everything[row] for row in rows]


def test_many_texts_are_read_without_being_held(tmp_path: Path) -> None:
    blocks, size = 64, 1024
    tracemalloc.start()
    try:
        before = held_bytes()
        texts = TextFile(([f"{block} {i} " + "x" * 2000 for i in range(size)] for block in range(blocks)), tmp_path)
        found = texts[np.arange(0, blocks * size, 4096)]
        held = held_bytes() - before
    finally:
        tracemalloc.stop()
    assert [text[:8].split()[0] for text in found] == [str(4 * k) for k in range(blocks // 4)]
    assert held < 40 * 2**20, "the file holds 125 MiB of text"


def held_bytes() -> int:
    """Return what Python and Arrow have allocated, in bytes, without mapped files."""
    return tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes()


def test_passages_are_read_as_the_corpus_joins_them(small_corpus: Path, tmp_path: Path) -> None:
    corpus = Corpus.open(small_corpus)
    everything = passage_texts(corpus)
    rows = np.arange(corpus.passage_count)[::-1]
    assert open_passage_texts(corpus, tmp_path)[rows].tolist() == everything[::-1]
    some = np.array([2, 0, -1, 2])
    assert open_passage_texts(corpus, tmp_path, some)[np.array([2, 0])].tolist() == [everything[2], everything[0]]
    chosen = corpus.passages_at(np.array([2, 0, 2]), "text", "passage_id")
    assert chosen["text"].tolist() == [corpus.passages["text"][row] for row in (2, 0, 2)]
    assert corpus.passages_at(np.array([], dtype=np.int64), "text")["text"].tolist() == []


@settings(max_examples=25)
@given(st.integers(0, 9), st.lists(st.integers(0, 99), max_size=8))
def test_passages_come_from_any_row_groups(
    tmp_path_factory: pytest.TempPathFactory, seed: int, rows: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("groups")
    ids = [f"p{i}" for i in range(100)]
    columns = {"passage_id": ids, "title": ids, "text": [f"{seed} {id}" for id in ids], "article_id": ids}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stillhouse.corpus.table_file.ROW_GROUP", 1 + seed * 7)
        write_tables(folder, {"passages": columns | {"section": [""] * 100, "position": [0] * 100}})
    found = Corpus.open(folder).passages_at(np.array(rows, dtype=np.int32), "text", "passage_id")
    assert found["text"].tolist() == [f"{seed} p{row}" for row in rows] and list(found.columns) == [
        "text",
        "passage_id",
    ]
    blocks = Corpus.open(folder).passage_blocks("passage_id", rows=9, among=np.unique(np.array(rows, dtype=np.int64)))
    assert [id for block in blocks for id in block["passage_id"]] == [f"p{row}" for row in sorted(set(rows))]
