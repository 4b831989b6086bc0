"""The pairs of a query and a passage that a teacher scores, and the scores that one or more processes compute.

Processes share whole chunks of tokenized pairs, so every batch and every score is the same as with one process.
Shape suffixes: Q queries, D the negatives' depth, P pairs, S pairs of a shard.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.context import Context, rank, world_size
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus, open_passage_texts
from stillhouse.models.acceleration.processes import join, wait_for_all
from stillhouse.models.cross_encoder import CrossEncoder
from stillhouse.models.pair_scores import ScoreLog, score_pairs, stretch
from stillhouse.training.negatives import Negatives
from stillhouse.training.rotation import first_turn
from stillhouse.training.settings import ScoredPairsConfig

FILE = "scores.npy"


@dataclass(frozen=True)
class ScoredPairs:
    """The pairs to score: all positives of every query, then the negatives where `scored_QD` is true, row by row.

    Of the dev queries these are all mined negatives, unless their number is set: among them a teacher is compared with
    its student.
    `query_P` are places in `queries`, `rows_P` passages of the corpus. The first `positives` pairs are positives.
    """

    queries: pd.DataFrame
    query_P: NDArray[np.int64]
    rows_P: NDArray[np.int32]
    positives: int
    scored_QD: NDArray[np.bool_]

    @classmethod
    def of(cls, config: ScoredPairsConfig, corpus: Corpus, negatives: Negatives) -> ScoredPairs:
        queries = negatives.texts(corpus)
        rows_QD = np.asarray(negatives.rows_QD)
        scored_QD = (rows_QD >= 0) & (np.arange(rows_QD.shape[1]) < config.depth)
        for split, count in (("train", config.negatives_scored), ("dev", config.dev_negatives_scored)):
            of_split = np.flatnonzero(negatives.queries["split"] == split)
            if count:
                scored_QD[of_split] = first_turn(scored_QD[of_split], of_split, count, config.seed)
            elif split == "dev":
                scored_QD[of_split] = rows_QD[of_split] >= 0
        offsets, positives = corpus.positives(queries["query_id"])
        query_of_positive = np.repeat(np.arange(len(queries)), np.diff(offsets))
        rows_P = np.concatenate([positives, rows_QD[scored_QD]])
        query_P = np.concatenate([query_of_positive, np.nonzero(scored_QD)[0]])
        return cls(queries, query_P, rows_P, len(positives), scored_QD)

    def __len__(self) -> int:
        return len(self.rows_P)

    @property
    def texts_Q(self) -> NDArray[np.object_]:
        return self.queries["text"].to_numpy(dtype=object)


def cross_encoder_scores(
    folder: Path, pairs: ScoredPairs, own: slice, corpus: Corpus, context: Context, config: ScoredPairsConfig
) -> NDArray[np.float32] | None:
    """Score the pairs `own`, which start at a chunk, with the cross-encoder in `folder`: float32 [S].

    The processes of torchrun share the pairs. When all are done, the first returns all scores and the others None.
    Raises as `score_pairs` does.
    """
    join(context.torch_device())
    query_S, rows_S, texts_Q = pairs.query_P[own], pairs.rows_P[own], pairs.texts_Q
    parts = [stretch(len(rows_S), number, world_size()) for number in range(1, world_size() + 1)]
    part = parts[rank()]
    model, passages = CrossEncoder.load(folder, raw=True), open_passage_texts(corpus, context.work, rows_S[part])
    scores = score_pairs(model, texts_Q, passages, query_S[part], rows_S[part], context, "scoring", config)
    wait_for_all()
    if rank() > 0:
        return None
    return np.concatenate([scores, *(_logged(context.work, texts_Q, query_S[of], rows_S[of]) for of in parts[1:])])


def _logged(
    work: Path, texts_Q: NDArray[np.object_], query_P: NDArray[np.int64], rows_P: NDArray[np.int32]
) -> NDArray[np.float32]:
    """The scores that another process has logged. Raises `RuntimeError` if some are missing."""
    with ScoreLog(work, list(texts_Q), query_P, rows_P) as log:
        if not log.done_P.all():
            raise RuntimeError(
                f"{(~log.done_P).sum()} scores of another process are not in {work}; give all processes one work area"
            )
        return log.scores_P


def read_scores(shares: Path, pairs: int) -> NDArray[np.float32]:
    """The scores float32 [P] of all shards that `score-shard` wrote into folders of `shares`.

    Raises `InputError` unless every shard is there once and there are `pairs` scores.
    """
    folders = {path: read_manifest(path).facts for path in sorted(shares.iterdir()) if path.is_dir()}
    by_number = sorted(folders, key=lambda path: int(folders[path]["shard"]))
    numbers = [int(folders[path]["shard"]) for path in by_number]
    scores = [np.load(path / FILE) for path in by_number]
    found = sum(map(len, scores))
    if not folders or numbers != list(range(1, int(folders[by_number[0]]["shards"]) + 1)) or found != pairs:
        raise InputError(f"{shares} holds {found} scores of the shards {numbers}, but there are {pairs} pairs to score")
    return np.concatenate(scores)
