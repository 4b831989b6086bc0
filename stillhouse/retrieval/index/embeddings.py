"""Embeddings on disk, found by the digest of their text: progress of one run, and what later runs need not compute.

A *segment* is two files that are written once: `<name>.vectors.npy` (float32 [S, D]) and `<name>.texts.npy` (the texts'
digests, 16 bytes each). The second appears last, so that a segment is there whole or not at all. Its name is the digest
of both, `<texts>-<vectors>`, and is compared with what is read; one that is damaged is removed, and its texts are
encoded again. The one segment of a shard is named otherwise, and vouched for by the shard's manifest. Segments of one
folder come from the same model, tokenizer and settings: the folder's name says which.

Shape suffixes: N texts asked for, M of them missing, S texts of a segment, D width.
"""

from __future__ import annotations

import hashlib
import os
import re
import resource
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillhouse.arrays import map_array, write_array
from stillhouse.context import say
from stillhouse.corpus.digest_numbers import digests_of
from stillhouse.errors import InputError

DIGEST = np.dtype("S16")
TEXTS, VECTORS = ".texts.npy", ".vectors.npy"
NAMED = re.compile(r"[0-9a-f]{20}-[0-9a-f]{32}")
PART = re.compile(rf"\.?{NAMED.pattern}\.(texts|vectors)\.npy(\.\d+)?")
"""A file of a kept segment, also one that is being written."""
ABANDONED_AFTER = 24 * 3600.0
"""Seconds after which a part of a segment is nobody's who still works."""
GIB = 1 << 30
AT_ONCE = 1 << 18
"""Texts of a segment that are looked for at once."""
OTHER_FILES = 256
"""Files that a process may have open beside vectors: libraries, threads, tables."""


def text_digests(texts: Sequence[str]) -> NDArray[np.bytes_]:
    """The digest of each text, 16 bytes: BLAKE2b of its UTF-8."""
    return digests_of(texts).view(DIGEST).reshape(-1)


def write_segment(folder: Path, digests_S: NDArray[np.bytes_], vectors_SD: NDArray[np.float32]) -> None:
    """Adds a segment; the same texts and vectors again replace it."""
    assert digests_S.dtype == DIGEST and len(digests_S) == len(vectors_SD), (digests_S.dtype, vectors_SD.shape)
    folder.mkdir(parents=True, exist_ok=True)
    vectors_SD = np.ascontiguousarray(vectors_SD, dtype=np.float32)
    name = _name(digests_S, vectors_SD)
    for ending, array in ((VECTORS, vectors_SD), (TEXTS, digests_S)):
        unfinished = folder / f".{name}{ending}.{os.getpid()}"
        try:
            with unfinished.open("wb") as file:
                write_array(file, array)
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(folder / f"{name}{ending}")
        finally:
            unfinished.unlink(missing_ok=True)  # where a full disk ended it, which needs the room


def _name(digests_S: NDArray[np.bytes_], vectors_SD: NDArray[np.float32]) -> str:
    texts, vectors = (hashlib.sha256(array.view(np.uint8).data).hexdigest() for array in (digests_S, vectors_SD))
    return f"{texts[:20]}-{vectors[:32]}"


def segments_of(folder: Path) -> list[Path]:
    """The `texts` files of a folder's whole segments, by name."""
    found = (path for path in folder.glob(f"*{TEXTS}") if not path.name.startswith("."))
    return sorted(path for path in found if vectors_of(path).is_file())


def vectors_of(segment: Path) -> Path:
    """The `vectors` file of a segment."""
    return segment.with_name(segment.name.removesuffix(TEXTS) + VECTORS)


def move_segments(source: Path, target: Path) -> None:
    """Moves a folder's segments into another; both lie on the same file system."""
    target.mkdir(parents=True, exist_ok=True)
    for segment in segments_of(source):
        for path in (vectors_of(segment), segment):
            os.utime(path)  # however long ago they were written: vectors that were old might go before their texts come
            path.replace(target / path.name)


class Embeddings:
    """The embeddings of a corpus's passages, in corpus order, wherever they lie; read through memory maps.

    `known` passages were found in the folders. `missing` are the rows [M] of those that were not, each text once, in
    the order of the passages. `used` are the segments that hold any, which stay readable when another run removes their
    files. A kept segment that is damaged is named in the log and removed. Raises `InputError` for a damaged shard, and
    for more segments than a process may have open.
    """

    def __init__(self, folders: Iterable[Path], digests_N: NDArray[np.bytes_], width: int) -> None:
        self.width = width
        self.used: list[Path] = []
        self._digests_N = digests_N
        self._files: list[NDArray[np.float32]] = []
        self._file_N = np.full(len(digests_N), -1, dtype=np.int32)
        self._row_N = np.full(len(digests_N), -1, dtype=np.int32)
        self.look_in(folders)

    def look_in(self, folders: Iterable[Path]) -> None:
        """Finds, of the passages that are missing, those that these folders hold by now."""
        read = set(self.used)
        segments = [path for folder in folders for path in segments_of(folder) if path not in read]
        # Sorted once, so that a segment costs its own size: looking for all texts in each would cost their product.
        order_M = np.flatnonzero(self._file_N < 0)
        order_M = order_M[np.argsort(self._digests_N[order_M], kind="stable")]
        sorted_M = self._digests_N[order_M]
        for segment in segments:
            self._look_up(segment, sorted_M, order_M)
        absent_M = self._file_N[order_M] < 0
        self.known = len(self) - int(absent_M.sum())
        absent_M[1:] &= sorted_M[1:] != sorted_M[:-1]
        self.missing = np.sort(order_M[absent_M])

    def _look_up(self, segment: Path, sorted_M: NDArray[np.bytes_], order_M: NDArray[np.int64]) -> None:
        """Notes which of the texts not found so far a segment holds; `order_M` are the rows of the sorted digests."""
        allow_open_files(len(self._files) + 1)
        try:
            digests_S, vectors_SD = _open(segment, self.width)
        except FileNotFoundError:
            return  # another run has just removed it, to make room
        except ValueError:
            _put_away(segment)
            return
        used = False
        for start in range(0, len(digests_S), AT_ONCE):
            row_F, own_F = _rows_of(digests_S[start : start + AT_ONCE], sorted_M, order_M)
            new_F = self._file_N[row_F] < 0
            if not new_F.any():
                continue
            if not used:
                name = segment.name.removesuffix(TEXTS)
                if NAMED.fullmatch(name) and name != _name(digests_S, vectors_SD):
                    _put_away(segment)
                    return
                used = True
                self._files.append(vectors_SD)
                self.used.append(segment)
            self._file_N[row_F[new_F]] = len(self._files) - 1
            self._row_N[row_F[new_F]] = start + own_F[new_F]

    def __len__(self) -> int:
        return len(self._file_N)

    def rows(self, rows: NDArray[np.integer]) -> NDArray[np.float32]:
        """The vectors [len(rows), D] of some passages, none of which is missing."""
        vectors = np.empty((len(rows), self.width), dtype=np.float32)
        file, row = self._file_N[rows], self._row_N[rows]
        assert (file >= 0).all(), "a passage has no embedding"
        for number in np.unique(file):
            chosen = np.flatnonzero(file == number)
            chosen = chosen[np.argsort(row[chosen])]  # as they lie on the disk
            vectors[chosen] = self._files[number][row[chosen]]
        return vectors

    def blocks(self, size: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """All vectors in corpus order: the first row of a block, and its vectors."""
        for start in range(0, len(self), size):
            yield start, self.rows(np.arange(start, min(start + size, len(self))))


def _rows_of(
    digests_S: NDArray[np.bytes_], sorted_M: NDArray[np.bytes_], order_M: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows [F] of the texts that are among the sorted ones, one that stands in several rows once for each.

    With them their places in `digests_S`.
    """
    begin_S = np.searchsorted(sorted_M, digests_S)
    counts_S = np.searchsorted(sorted_M, digests_S, side="right") - begin_S
    own_F = np.repeat(np.arange(len(digests_S)), counts_S)
    place_F = np.arange(len(own_F)) - np.repeat(np.cumsum(counts_S) - counts_S, counts_S)
    return order_M[begin_S[own_F] + place_F], own_F


def _open(segment: Path, width: int) -> tuple[NDArray[np.bytes_], NDArray[np.float32]]:
    """A segment's digests and vectors, memory-mapped. Raises `ValueError` where they are not of one segment."""
    digests_S = map_array(segment, DIGEST)
    vectors_SD = map_array(vectors_of(segment), np.float32, (width,))
    if len(digests_S) != len(vectors_SD):
        raise ValueError(f"{segment} has {len(digests_S)} texts, and {len(vectors_SD)} vectors")
    return digests_S, vectors_SD


def _put_away(segment: Path) -> None:
    """Removes a kept segment that is damaged, which nobody could do by hand in a pod.

    Raises `InputError` for a shard: it is an input, and not this step's to remove.
    """
    if not NAMED.fullmatch(segment.name.removesuffix(TEXTS)):
        raise InputError(f"{segment} is damaged, or its vectors are; run `stillhouse encode` for its shard again")
    say(f"{segment} is damaged, or its vectors are: it is removed, and its passages are encoded again")
    segment.unlink(missing_ok=True)
    vectors_of(segment).unlink(missing_ok=True)


def allow_open_files(count: int) -> None:
    """Lets this process have `count` files open beside its others: every map keeps one, as long as it is there.

    Raises `InputError` where the system does not allow that many.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = count + OTHER_FILES
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise InputError(
            f"the vectors lie in more files than a process may have open here ({hard}); raise that limit "
            "(`ulimit -Hn`), or encode in shards (`stillhouse encode`), each of which is one file"
        )
    wanted = 2 * needed
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def touch(segments: Iterable[Path]) -> None:
    """Notes that segments were used now, which is what `prune` goes by."""
    for segment in segments:
        with suppress(FileNotFoundError):
            os.utime(segment)


def prune(root: Path, limit: float) -> int:
    """Removes the segments below `root` that were used longest ago until all take at most `limit` GiB; how many.

    What a kill left of a segment takes room too, and goes first, once it is a day old: another run may be writing it.
    """
    sizes: dict[Path, int] = {}
    left: dict[Path, os.stat_result] = {}
    segments = []
    for folder in root.glob("*/"):
        whole = segments_of(folder)
        parts = {part for path in whole for part in (path, vectors_of(path))}
        left |= _stats(path for path in folder.iterdir() if PART.fullmatch(path.name) and path not in parts)
        for path in whole:
            found = _stats([path, vectors_of(path)])
            if len(found) == 2:
                sizes[path] = sum(about.st_size for about in found.values())
                segments.append((found[path].st_mtime_ns, path))
    total, removed = sum(sizes.values()) + sum(about.st_size for about in left.values()), 0
    for path, about in left.items():
        if time.time() - about.st_mtime > ABANDONED_AFTER:
            path.unlink(missing_ok=True)
            total -= about.st_size
    for _, path in sorted(segments):
        if total <= limit * GIB:
            break
        path.unlink(missing_ok=True)
        vectors_of(path).unlink(missing_ok=True)
        total -= sizes[path]
        removed += 1
    return removed


def _stats(paths: Iterable[Path]) -> dict[Path, os.stat_result]:
    """What the system says of files, without those that another run has removed to make room."""
    found = {}
    for path in paths:
        with suppress(FileNotFoundError):
            found[path] = path.stat()
    return found
