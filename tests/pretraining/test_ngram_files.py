"""Count folders: what is written, what pruning drops, and that shards add up to the whole corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from slow_counts import Passages, flat

from stillhouse.core.errors import InputError
from stillhouse.pretraining.ngram_files import merge_counts, read_about, save_counts
from stillhouse.pretraining.ngram_merge import Memory
from stillhouse.pretraining.ngrams import count_ngrams


def write(passages: Passages, folder: Path, longest: int = 3, **about: Any) -> Path:
    ids, offsets = flat(passages)
    tables = count_ngrams(ids, offsets, longest, folder / "tables", Memory(1 << 12))
    save_counts(tables, folder / "counts", **about)
    return folder / "counts"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_files(tmp_path: Path) -> None:
    folder = write([[3, 4, 3, 4], [4]], tmp_path, longest=2, tokenizer="t")
    bigrams = np.load(folder / "ngrams_2.npy")
    assert bigrams.dtype == np.dtype([("gram", np.int32, (2,)), ("count", np.int64)])
    assert (bigrams["gram"].tolist(), bigrams["count"].tolist()) == ([[3, 4], [4, 3]], [2, 1])
    about = read_about(folder)
    assert (about.tokenizer, about.min_count, about.totals) == ("t", 1, [5, 3])


def test_pruning_keeps_tokens_and_totals(tmp_path: Path) -> None:
    ids, offsets = flat([[3, 4, 3, 4, 5]])
    tables = count_ngrams(ids, offsets, 2, tmp_path / "tables")
    saved = save_counts(tables, tmp_path / "counts", min_count=2)
    assert np.load(tmp_path / "counts" / "ngrams_1.npy")["gram"].tolist() == [[3], [4], [5]]
    assert np.load(tmp_path / "counts" / "ngrams_2.npy")["gram"].tolist() == [[3, 4]]
    assert saved.distinct == [3, 1]
    # (4 3) and (4 5), once each, of 4 bigrams.
    np.testing.assert_allclose(saved.dropped, [0, 0.5])
    assert read_about(tmp_path / "counts").totals == [5, 4]


PASSAGES = st.lists(st.lists(st.integers(0, 5), max_size=9), max_size=6)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(shards=st.lists(PASSAGES, min_size=1, max_size=3), longest=st.integers(2, 5), size=st.integers(1, 1 << 13))
def test_shards_add_up(shards: list[Passages], longest: int, size: int, tmp_path: Path) -> None:
    """Merged counts equal, byte for byte, those of all passages in one corpus."""
    folders = [write(shard, tmp_path / f"{number}", longest) for number, shard in enumerate(shards)]
    whole = write([passage for shard in shards for passage in shard], tmp_path / "whole", longest)
    merge_counts(folders, tmp_path / "sum", tmp_path / "work", Memory(size))
    assert contents(tmp_path / "sum") == contents(whole)


@pytest.mark.parametrize(("changed", "what"), [({"tokenizer": "other"}, "tokenizer"), ({"longest": 4}, "window")])
def test_refuses_counts_of_another_kind(changed: dict[str, Any], what: str, tmp_path: Path) -> None:
    folders = [write([[2, 4]], tmp_path / "one"), write([[2, 4]], tmp_path / "other", **changed)]
    with pytest.raises(InputError, match=f"differ in {what}.*stillhouse importance"):
        merge_counts(folders, tmp_path / "sum", tmp_path / "work")
