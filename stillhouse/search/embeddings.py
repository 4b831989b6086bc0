"""Embeddings on disk, found by the digest of their text: the progress of a run, and a cache for later runs.

A *segment* is two files that are written once: `<name>.vectors.npy` (float32 [S, D]) and `<name>.texts.npy` (the texts'
digests, 16 bytes each). The second is written last, so a segment is complete or absent. Its name is the digest of its
texts. All segments of a folder come from the model, tokenizer and settings that the folder's name stands for.

A *shard* is a folder that the step `encode` writes: a single segment of the passages `shard_rows` with another name,
and a manifest that verifies it.

Shape suffixes: N requested texts, M missing texts, S texts of a segment, D width.
"""

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

from stillhouse.core.arrays import map_array, save_array, write_array, write_header, write_numbers
from stillhouse.core.artifacts import MANIFEST, Manifest, read_manifest
from stillhouse.core.errors import InputError
from stillhouse.corpus.digest_numbers import digests_of
from stillhouse.corpus.passage_ids import PassageIds
from stillhouse.search.exact_search import BLOCK

DIGEST = np.dtype("S16")
TEXTS, VECTORS = ".texts.npy", ".vectors.npy"
PART = re.compile(r"\.?([0-9a-f]{20}(?:-[0-9a-f]{32})?)\.(?:texts|vectors)\.npy(?:\.\d+)?")
"""A file of a cached segment, including one that is being written."""
ABANDONED_AFTER = 24 * 3600.0
"""Seconds after which an incomplete segment counts as abandoned."""
GIB = 1 << 30
AT_ONCE = 1 << 18
"""Texts of a segment looked up together."""
MOST_FILES = 1 << 20


def text_digests(texts: Sequence[str]) -> NDArray[np.bytes_]:
    """The digest of each text, 16 bytes: BLAKE2b of its UTF-8."""
    return digests_of(texts).view(DIGEST).reshape(-1)


def write_segment(folder: Path, digests_S: NDArray[np.bytes_], vectors_SD: NDArray[np.float32]) -> None:
    """Add a segment. Writing the same texts and vectors again replaces it."""
    assert digests_S.dtype == DIGEST and len(digests_S) == len(vectors_SD), (digests_S.dtype, vectors_SD.shape)
    folder.mkdir(parents=True, exist_ok=True)
    vectors_SD = np.ascontiguousarray(vectors_SD, dtype=np.float32)
    name = hashlib.sha256(digests_S.view(np.uint8).data).hexdigest()[:20]
    for ending, array in ((VECTORS, vectors_SD), (TEXTS, digests_S)):
        unfinished = folder / f".{name}{ending}.{os.getpid()}"
        try:
            with unfinished.open("wb") as file:
                write_array(file, array)
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(folder / f"{name}{ending}")
        finally:
            unfinished.unlink(missing_ok=True)  # frees the space if the disk was full


def segments_of(folder: Path) -> list[Path]:
    """The `texts` files of a folder's complete segments, by name."""
    found = (path for path in folder.glob(f"*{TEXTS}") if not path.name.startswith("."))
    return sorted(path for path in found if vectors_of(path).is_file())


def vectors_of(segment: Path) -> Path:
    """The `vectors` file of a segment."""
    return segment.with_name(segment.name.removesuffix(TEXTS) + VECTORS)


def move_segments(source: Path, target: Path) -> None:
    """Move a folder's segments to another folder on the same file system."""
    target.mkdir(parents=True, exist_ok=True)
    for segment in segments_of(source):
        for path in (vectors_of(segment), segment):
            os.utime(path)  # or old vectors might be pruned before their texts arrive
            path.replace(target / path.name)


class Embeddings:
    """The embeddings of a corpus's passages in corpus order, read from several folders through memory maps.

    `known` is the number of passages found in the folders. `missing` are the rows [M] of the others, each text once, in
    the order of the passages. `used` are the segments in use, which stay readable if another run removes their files.
    Raises `InputError` for a damaged segment.
    """

    def __init__(self, folders: Iterable[Path], digests_N: NDArray[np.bytes_], width: int) -> None:
        self.width = width
        self.used: list[Path] = []
        self._digests_N = digests_N
        self._files: list[NDArray[np.float32]] = []
        self._file_N = np.full(len(digests_N), -1, dtype=np.int32)
        self._row_N = np.full(len(digests_N), -1, dtype=np.int32)
        # As many open files as the system permits, since every memory map keeps one open.
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = MOST_FILES if hard == resource.RLIM_INFINITY else hard
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        self.look_in(folders)

    def look_in(self, folders: Iterable[Path]) -> None:
        """Look for the missing passages in these folders."""
        read = set(self.used)
        segments = [path for folder in folders for path in segments_of(folder) if path not in read]
        # Sorted once, so each segment costs time in its own size rather than in the number of missing texts.
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
        """Record the missing texts that a segment holds; `order_M` are the rows of the sorted digests."""
        try:
            digests_S = map_array(segment, DIGEST)
            vectors_SD = map_array(vectors_of(segment), np.float32, (self.width,))
            if len(digests_S) != len(vectors_SD):
                raise ValueError(f"{segment} has {len(digests_S)} texts and {len(vectors_SD)} vectors")
        except FileNotFoundError:
            return  # another run has just removed it to make room
        except ValueError as error:
            raise InputError(
                f"{segment} is damaged ({error}); remove it, or run `{STEP}` for its shard again"
            ) from None
        for start in range(0, len(digests_S), AT_ONCE):
            row_F, own_F = _rows_of(digests_S[start : start + AT_ONCE], sorted_M, order_M)
            new_F = self._file_N[row_F] < 0
            if not new_F.any():
                continue
            if segment not in self.used[-1:]:
                self._files.append(vectors_SD)
                self.used.append(segment)
            self._file_N[row_F[new_F]] = len(self._files) - 1
            self._row_N[row_F[new_F]] = start + own_F[new_F]

    def __len__(self) -> int:
        return len(self._file_N)

    def rows(self, rows: NDArray[np.integer]) -> NDArray[np.float32]:
        """The vectors [len(rows), D] of some passages; none may be missing."""
        vectors = np.empty((len(rows), self.width), dtype=np.float32)
        file, row = self._file_N[rows], self._row_N[rows]
        assert (file >= 0).all(), "a passage has no embedding"
        for number in np.unique(file):
            chosen = np.flatnonzero(file == number)
            chosen = chosen[np.argsort(row[chosen])]  # in disk order
            vectors[chosen] = self._files[number][row[chosen]]
        return vectors

    def blocks(self, size: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """All vectors in corpus order, as blocks of a first row and vectors."""
        for start in range(0, len(self), size):
            yield start, self.rows(np.arange(start, min(start + size, len(self))))


def _rows_of(
    digests_S: NDArray[np.bytes_], sorted_M: NDArray[np.bytes_], order_M: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The rows [F] of the digests that are among the sorted ones, and their places in `digests_S`.

    A text in several rows appears once for each row.
    """
    begin_S = np.searchsorted(sorted_M, digests_S)
    counts_S = np.searchsorted(sorted_M, digests_S, side="right") - begin_S
    own_F = np.repeat(np.arange(len(digests_S)), counts_S)
    place_F = np.arange(len(own_F)) - np.repeat(np.cumsum(counts_S) - counts_S, counts_S)
    return order_M[begin_S[own_F] + place_F], own_F


def touch(segments: Iterable[Path]) -> None:
    """Mark segments as used now, for `prune`."""
    for segment in segments:
        with suppress(FileNotFoundError):
            os.utime(segment)


def prune(root: Path, limit: float) -> int:
    """Remove the least recently used segments below `root` until all take at most `limit` GiB; return how many.

    Incomplete segments count too. They are removed first, but only when a day old, because another run may be writing
    them.
    """
    parts: dict[Path, dict[Path, os.stat_result]] = {}
    for path in root.glob("*/*"):
        if found := PART.fullmatch(path.name):
            with suppress(FileNotFoundError):  # another run has just removed it
                parts.setdefault(path.parent / found[1], {})[path] = path.stat()
    segments, total, removed = [], 0, 0
    for name, files in parts.items():
        used, size = max(about.st_mtime for about in files.values()), sum(about.st_size for about in files.values())
        whole = sorted(path.name for path in files) == [f"{name.name}{TEXTS}", f"{name.name}{VECTORS}"]
        if not whole and time.time() - used > ABANDONED_AFTER:
            _remove(files)
            continue
        total += size
        segments += [(used, size, list(files))] if whole else []
    for _, size, paths in sorted(segments):
        if total <= limit * GIB:
            break
        _remove(paths)
        total -= size
        removed += 1
    return removed


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


NAME = "passages"
STEP = "encode"


def shard_rows(passages: int, shard: int, shards: int) -> NDArray[np.int64]:
    """The rows of shard 1, 2 .. `shards`: consecutive parts of the corpus, as equal in size as possible."""
    return np.arange(passages * (shard - 1) // shards, passages * shard // shards)


def write_shard(
    folder: Path, embeddings: Embeddings, digests_S: NDArray[np.bytes_], passage_ids: PassageIds, first: int
) -> None:
    """Write `passages.vectors.npy` (float32 [S, D]), `passages.texts.npy` (digests) and `ids.parquet`, aligned.

    `passage_ids` are the ids of the whole corpus, and `first` is the row of the shard's first passage.
    """
    assert digests_S.dtype == DIGEST and len(digests_S) == len(embeddings)
    with (folder / f"{NAME}{VECTORS}").open("wb") as file:
        write_header(file, np.dtype("<f4"), (len(embeddings), embeddings.width))
        for _, vectors_BD in embeddings.blocks(BLOCK):
            write_numbers(file, vectors_BD.astype("<f4"))
    save_array(folder / f"{NAME}{TEXTS}", digests_S)
    passage_ids.write(folder / "ids.parquet", first, first + len(embeddings))


def find_shards(folder: Path, corpus: str, model: str) -> list[Path]:
    """The folders of all shards by number: `folder` is the only one, or each of its folders is a shard.

    The shards must come from the corpus with the digest `corpus` and the model with the `model_key` `model`. Raises
    `InputError` for a shard that is missing, appears twice, or was made from something else.
    """
    folders = [folder] if (folder / MANIFEST).is_file() else sorted(path for path in folder.iterdir() if path.is_dir())
    manifests = {path: read_manifest(path) for path in folders}
    if not manifests:
        raise InputError(f"{folder} has no vectors; `stillhouse {STEP}` writes a folder for each shard")
    for path, manifest in manifests.items():
        _refuse_foreign(path, manifest, corpus, model)
    shards = {int(manifest.facts["shards"]) for manifest in manifests.values()}
    by_number = {int(manifest.facts["shard"]): path for path, manifest in manifests.items()}
    if len(shards) > 1 or len(by_number) < len(manifests) or len(by_number) < max(shards):
        found = ", ".join(f"{about.facts['shard']} of {about.facts['shards']}" for about in manifests.values())
        raise InputError(
            f"{folder} must hold every shard of one division once, but holds {found}; run `stillhouse {STEP}` for "
            "those that are missing, and remove the others"
        )
    return [by_number[number] for number in sorted(by_number)]


def _refuse_foreign(path: Path, manifest: Manifest, corpus: str, model: str) -> None:
    if manifest.step != STEP:
        raise InputError(f"{path} was written by step '{manifest.step}'; give folders of `stillhouse {STEP}`")
    if manifest.inputs["corpus"] != corpus:
        raise InputError(f"{path} was encoded from another corpus; run `stillhouse {STEP}` again with this one")
    if manifest.facts["model"] != model:
        raise InputError(
            f"{path} was encoded by another model, or in another precision; run `stillhouse {STEP}` again with this one"
        )
