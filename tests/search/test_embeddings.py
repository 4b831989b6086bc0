"""Embeddings by the digest of their text: found, missing, damaged, removed."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillhouse.core.errors import InputError
from stillhouse.search import embeddings
from stillhouse.search.embeddings import (
    ABANDONED_AFTER,
    GIB,
    Embeddings,
    prune,
    segments_of,
    text_digests,
    touch,
    vectors_of,
    write_segment,
)

RNG = np.random.default_rng(0)


def segment(folder: Path, texts: list[str], width: int = 4) -> np.ndarray:
    vectors = RNG.standard_normal((len(texts), width)).astype(np.float32)
    write_segment(folder, text_digests(texts), vectors)
    return vectors


def test_vectors_come_in_the_order_of_the_texts_from_many_segments(tmp_path: Path) -> None:
    texts = [f"text {n}" for n in range(50)]
    order = RNG.permutation(50)
    expected = np.empty((50, 4), dtype=np.float32)
    for part in np.array_split(order, 4):
        expected[part] = segment(tmp_path / str(part[0] % 2), [texts[n] for n in part])
    found = Embeddings([tmp_path / "0", tmp_path / "1"], text_digests(texts), 4)
    assert found.known == 50 and not len(found.missing)
    assert np.array_equal(np.concatenate([block for _, block in found.blocks(7)]), expected)
    assert np.array_equal(found.rows(np.array([30, 2, 2])), expected[[30, 2, 2]])


def test_missing_texts_are_named_once_in_order(tmp_path: Path) -> None:
    segment(tmp_path, ["b"])
    found = Embeddings([tmp_path], text_digests(["c", "b", "a", "c", "a", "b"]), 4)
    assert found.missing.tolist() == [0, 2] and found.known == 2


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=5), max_size=4),
    st.lists(st.sampled_from("abcdefghij")),
    st.integers(1, 6),
)
def test_texts_are_found_as_in_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, segments: list[list[str]], asked: list[str], at_once: int
) -> None:
    """Texts are in several segments, twice in one, and in several requested rows."""
    folder, known = tmp_path_factory.mktemp("found"), set[str]()
    for number, texts in enumerate(segments):
        # Equal texts have equal vectors, whichever segment they are read from.
        vectors = np.array([[ord(text)] for text in texts], dtype=np.float32).reshape(-1, 1)
        write_segment(folder / str(number), text_digests(texts), vectors)
        known |= set(texts)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(embeddings, "AT_ONCE", at_once)
        found = Embeddings([folder / str(number) for number in range(len(segments))], text_digests(asked), 1)
    rows = [row for row, text in enumerate(asked) if text in known]
    assert found.known == len(rows)
    assert found.rows(np.array(rows, dtype=np.int64))[:, 0].tolist() == [ord(asked[row]) for row in rows]
    absent = [row for row, text in enumerate(asked) if text not in known and text not in asked[:row]]
    assert found.missing.tolist() == absent


def test_more_files_than_a_process_opens_by_itself(tmp_path: Path) -> None:
    """Every segment keeps a file open, and the usual limit is 1,024."""
    texts = [f"text {n}" for n in range(60)]
    for text in texts:
        segment(tmp_path, [text])
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    already = len(list(Path("/proc/self/fd").iterdir()))
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (already + 20, hard))
        assert not len(Embeddings([tmp_path], text_digests(texts), 4).missing)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_found_vectors_survive_the_eviction_by_another_run(tmp_path: Path) -> None:
    old, new = segment(tmp_path / "kept", ["a", "b"]), tmp_path / "new"
    found = Embeddings([tmp_path / "kept"], text_digests(["c", "a", "b", "c"]), 4)
    assert found.known == 2 and found.missing.tolist() == [0]
    prune(tmp_path, 0)
    vector = segment(new, ["c"])
    found.look_in([new])
    assert found.known == 4 and not len(found.missing)
    assert np.array_equal(found.rows(np.arange(4)), [vector[0], *old, vector[0]])


def test_a_damaged_segment_is_refused_by_name(tmp_path: Path) -> None:
    segment(tmp_path, ["a", "b"])
    (path,) = segments_of(tmp_path)
    os.truncate(vectors_of(path), vectors_of(path).stat().st_size - 4)
    with pytest.raises(InputError, match=rf"{path.name} is damaged .*; remove it"):
        Embeddings([tmp_path], text_digests(["a", "b"]), 4)


def test_the_least_recently_used_segments_are_evicted(tmp_path: Path) -> None:
    for age, name in ((50, "one"), (30, "two"), (10, "two")):
        segment(tmp_path / name, [f"{name} {age}"])
        for path in segments_of(tmp_path / name):
            if path.stat().st_mtime > 1e9:
                os.utime(path, (1000 - age, 1000 - age))
    touch(segments_of(tmp_path / "one"))
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.npy"))
    assert prune(tmp_path, size / GIB) == 0
    assert prune(tmp_path, (size - 1) / GIB) == 1
    kept = [
        Embeddings([tmp_path / text.split()[0]], text_digests([text]), 4).known
        for text in ("one 50", "two 30", "two 10")
    ]
    assert kept == [1, 0, 1]
    assert prune(tmp_path, 0) == 2 and not list(tmp_path.rglob("*.npy"))


PARTS = ("vectors alone", "texts alone", "unfinished")


def part_of_a_segment(folder: Path, part: str) -> Path:
    """Make the part of a segment that a kill leaves between its two files, or while one is being written."""
    segment(folder / "aside", [part])
    (path,) = segments_of(folder / "aside")
    kept, gone = (path, vectors_of(path)) if part == "texts alone" else (vectors_of(path), path)
    gone.unlink()
    return kept.rename(folder / (f".{kept.name}.4711" if part == "unfinished" else kept.name))


@pytest.mark.parametrize("part", PARTS)
def test_leftovers_of_a_kill_count_and_are_removed_after_a_day(tmp_path: Path, part: str) -> None:
    folder = tmp_path / "model"
    segment(folder, ["kept"])
    left = part_of_a_segment(folder, part)
    foreign = folder / "notes.npy"
    foreign.write_bytes(b"somebody's")
    (folder / "aside").rmdir()
    sizes = {path: path.stat().st_size for path in folder.iterdir()}
    [kept] = segments_of(folder)
    whole = sizes[kept] + sizes[vectors_of(kept)]
    assert prune(tmp_path, (whole + sizes[left]) / GIB) == 0 and left.exists()
    old = time.time() - ABANDONED_AFTER - 60
    os.utime(left, (old, old))
    assert prune(tmp_path, whole / GIB) == 0 and not left.exists(), "and so the segment has room"
    assert segments_of(folder) == [kept] and foreign.exists()


@pytest.mark.parametrize("part", PARTS)
def test_files_that_another_run_is_writing_count_and_stay(tmp_path: Path, part: str) -> None:
    folder = tmp_path / "model"
    segment(folder, ["kept"])
    left = part_of_a_segment(folder, part)
    whole = sum(path.stat().st_size for path in [*segments_of(folder), vectors_of(segments_of(folder)[0])])
    assert prune(tmp_path, whole / GIB) == 1 and left.exists() and not segments_of(folder)
