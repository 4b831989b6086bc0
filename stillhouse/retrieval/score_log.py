"""Scores that outlive a killed run: appended batch by batch to a file of the work folder, read back by the next run.

The file is a row of blocks, each a header and its scores. A block that was not written to its end, or not rightly, ends
the file: it and what follows is computed again.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from stillhouse.corpus.digest_numbers import digests_of

HEADER = np.dtype([("pairs", "<u4"), ("checksum", "<u4")])
ENTRY = np.dtype([("pair", "<u4"), ("score", "<f4")])


class ScoreLog:
    """The scores of pairs of a query and a passage, by the pair's number; a context manager that closes its file.

    `query_P`, places in `queries`, and `row_P` name the pairs; the file's name holds the digest of all three, so that
    scores of others are not taken for theirs.
    """

    def __init__(
        self, folder: Path, queries: Sequence[str], query_P: NDArray[np.integer], row_P: NDArray[np.integer]
    ) -> None:
        digest = hashlib.sha256(digests_of(queries).tobytes())
        for array in (query_P, row_P):
            digest.update(np.ascontiguousarray(array, dtype="<i8").data)
        self.scores_P = np.full(len(query_P), np.nan, dtype=np.float32)
        self.done_P = np.zeros(len(query_P), dtype=np.bool_)
        self._file = (folder / f"scores-{digest.hexdigest()[:20]}.log").open("a+b")
        self._read()

    def add(self, pairs: NDArray[np.int64], scores: NDArray[np.float32]) -> None:
        """Keeps the scores of a batch."""
        self._take(pairs, scores)
        entries = np.empty(len(pairs), dtype=ENTRY)
        entries["pair"], entries["score"] = pairs, scores
        body = entries.tobytes()
        self._file.write(np.array([(len(pairs), zlib.crc32(body))], dtype=HEADER).tobytes() + body)
        self._file.flush()

    def _take(self, pairs: NDArray[np.integer], scores: NDArray[np.float32]) -> None:
        self.scores_P[pairs], self.done_P[pairs] = scores, True

    def _read(self) -> None:
        self._file.seek(0)
        whole = 0
        while len(head := self._file.read(HEADER.itemsize)) == HEADER.itemsize:
            header = np.frombuffer(head, dtype=HEADER)[0]
            body = self._file.read(int(header["pairs"]) * ENTRY.itemsize)
            if not header["pairs"] or zlib.crc32(body) != header["checksum"]:
                break
            entries = np.frombuffer(body, dtype=ENTRY)
            self._take(entries["pair"], entries["score"])
            whole = self._file.tell()
        self._file.truncate(whole)

    def __enter__(self) -> ScoreLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()
