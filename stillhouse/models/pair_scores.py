"""Scores pairs of a query and a passage, and keeps the scores for a run that resumes after a kill.

Every cross-encoder tokenizes pairs and scores them. Scores are appended batch by batch to a file in the work folder;
what a kill left incomplete is computed again.

Shape suffixes: P pairs, L tokens.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from stillhouse.core.arrays import chunks
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.corpus.digest_numbers import digests_of
from stillhouse.corpus.table_file import TextFile
from stillhouse.models.acceleration.batches import Ahead, side_by_side, threads_of
from stillhouse.models.encoder import TokenizedTexts, inference, length_batches
from stillhouse.models.settings import InferenceConfig

ENTRY = np.dtype([("pair", "<u4"), ("score", "<f4")])
PAIRS_AT_ONCE = 16_384


class PairScorer(nn.Module, ABC):
    """A model that scores pairs; `activation` makes a score of a raw score."""

    activation: nn.Module

    @abstractmethod
    def pairs(self, queries: Sequence[str], passages: Sequence[str]) -> PairTexts:
        """Tokenize pairs."""

    @abstractmethod
    def forward(self, ids_PL: Tensor, mask_PL: Tensor, types_PL: Tensor) -> Tensor:
        """Raw scores [P], float32; the three int64 tensors are those of `PairTexts.batch`."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write a folder for `CrossEncoder.load`."""


class PairTexts:
    """Tokenized pairs with their token types or halves (0 for the query, 1 for the passage)."""

    def __init__(self, ids: TokenizedTexts, types: TokenizedTexts) -> None:
        self.ids = ids
        self._types = types

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, rows: Sequence[int] | np.ndarray, device: object) -> tuple[Tensor, Tensor, Tensor]:
        ids_PL, mask_PL = self.ids.batch(rows, device)  # type: ignore[arg-type]
        types_PL, _ = self._types.batch(rows, device)  # type: ignore[arg-type]
        return ids_PL, mask_PL, types_PL


class ScoreLog:
    """The scores of pairs of a query and a passage by the pair's number; a context manager that closes its file.

    `query_P` (places in `queries`) and `row_P` identify the pairs. The file's name contains the digest of all three, so
    scores of other pairs are not mistaken for theirs.
    """

    def __init__(
        self, folder: Path, queries: Sequence[str], query_P: NDArray[np.integer], row_P: NDArray[np.integer]
    ) -> None:
        digest = hashlib.sha256(digests_of(queries).tobytes())
        for array in (query_P, row_P):
            digest.update(np.ascontiguousarray(array, dtype="<i8").data)
        self.scores_P = np.full(len(query_P), np.nan, dtype=np.float32)
        self.done_P = np.zeros(len(query_P), dtype=np.bool_)
        path = folder / f"scores-{digest.hexdigest()[:20]}.log"
        known = np.fromfile(path, ENTRY) if path.is_file() else np.empty(0, ENTRY)
        self._take(known["pair"], known["score"])
        self._file = path.open("ab")
        self._file.truncate(known.nbytes)

    def add(self, pairs: NDArray[np.int64], scores: NDArray[np.float32]) -> None:
        """Store the scores of a batch."""
        self._take(pairs, scores)
        entries = np.empty(len(pairs), dtype=ENTRY)
        entries["pair"], entries["score"] = pairs, scores
        self._file.write(entries.tobytes())
        self._file.flush()

    def _take(self, pairs: NDArray[np.integer], scores: NDArray[np.float32]) -> None:
        self.scores_P[pairs], self.done_P[pairs] = scores, True

    def __enter__(self) -> ScoreLog:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def score_pairs(
    model: PairScorer,
    queries: np.ndarray,
    passages: TextFile | np.ndarray,
    query_P: np.ndarray,
    row_P: np.ndarray,
    context: Context,
    what: str,
    config: InferenceConfig,
) -> np.ndarray:
    """Score the pairs (`queries[query_P]`, `passages[row_P]`) in length-sorted batches, float32 [P].

    Pairs are tokenized 16,384 at a time, one part ahead. Every finished batch is stored in `context.work`. A run after
    a kill computes only what is missing, in the same batches, so its scores are the same bit for bit.
    Raises `InputError` for a score that is not finite.
    """
    with ScoreLog(context.work, list(queries), query_P, row_P) as log, inference(model, context, config) as device:
        parts = [part for part in chunks(len(query_P), PAIRS_AT_ONCE) if not log.done_P[part].all()]

        def tokenized(number: int) -> PairTexts:
            part = parts[number]
            return model.pairs(list(queries[query_P[part]]), list(passages[row_P[part]]))

        done = int(log.done_P.sum())
        with Ahead(tokenized, len(parts)) as ahead, context.bar(what, len(query_P), "pair", done=done) as bar:
            for number, part in enumerate(parts):
                texts = ahead(number)
                batches = length_batches(texts.ids.lengths(), config.batch_tokens // threads_of(device))
                missing = (rows for rows in batches if not log.done_P[part[rows]].all())

                def score(rows: np.ndarray, texts: PairTexts = texts) -> np.ndarray:
                    return model.activation(model(*texts.batch(rows, device)).float()).cpu().numpy()

                for rows, scores in side_by_side(missing, score, config.precision, device):
                    if not np.isfinite(scores).all():
                        wrong = part[rows[np.argmin(np.isfinite(scores))]]
                        passage = passages[row_P[wrong : wrong + 1]][0]
                        raise InputError(
                            f"the cross-encoder's score of query {queries[query_P[wrong]][:80]!r} with passage "
                            f"{passage[:80]!r} is not finite; train the re-ranker again with a lower "
                            "learning rate, or score in fp32 (`precision: fp32`)"
                        )
                    log.add(part[rows], scores)
                    bar.update(len(rows))
        return log.scores_P


def stretch(pairs: int, shard: int, shards: int) -> slice:
    """The pairs of shard 1, 2 .. `shards`: whole tokenized chunks, divided as evenly as possible.

    `score_pairs` scores them in the same batches as it would all pairs together.
    """
    chunks = -(-pairs // PAIRS_AT_ONCE)
    begin, end = (PAIRS_AT_ONCE * (chunks * number // shards) for number in (shard - 1, shard))
    return slice(begin, min(end, pairs))
