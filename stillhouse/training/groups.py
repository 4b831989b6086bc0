"""Training groups: a query, one of its positives and some of its hard negatives, which take turns.

Shapes: Q queries of a split, B examples of a step, N negatives of an example, K = 1 + N candidates (column 0 the
positive), D negatives' depth, P positives of the split.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillhouse.core.arrays import chunks
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.relevance import AnswerSets, never_negative
from stillhouse.training import rotation
from stillhouse.training.negatives import Negatives

QUERIES_AT_ONCE = 4096
NO_QUERIES = (
    "the corpus has no {} queries; training needs train and dev queries with qrels: `stillhouse ingest` makes them "
    "from the corpus itself with `queries: pairs`"
)


def asked_queries(corpus: Corpus, split: str) -> tuple[list[str], list[str]]:
    """The ids and texts of a split's queries with qrels. Raises `InputError` if there are none."""
    queries = corpus.queries_of(split)
    queries = queries[queries["query_id"].isin(corpus.qrels_of(split)["query_id"])]
    if not len(queries):
        raise InputError(NO_QUERIES.format(split))
    return list(queries["query_id"]), list(queries["text"])


@dataclass(frozen=True)
class Groups:
    """Examples of one step. If a query has too few negatives, `candidate_BK` is false and the row is -1."""

    examples_B: NDArray[np.int64]
    rows_BK: NDArray[np.int32]
    candidate_BK: NDArray[np.bool_]
    columns_BK: NDArray[np.int64]
    """The column of `negatives/rows.npy` that each negative was drawn from; 0 for the positive."""
    positive_B: NDArray[np.int64]
    """The place of each positive in the split's list of positives."""


@dataclass
class GroupSampler:
    """Draws groups for the queries of a split. A draw depends only on the seed, the query and how often the query was
    seen.

    Each query shuffles its best `depth` negatives once. Each time it is seen it draws the next `count` of them, and it
    starts over after the last (`rotation`). Its positives take turns too. With a teacher's `scores_QD` (float32,
    aligned with the negatives, NaN for none), only scored negatives are drawn.

    Raises `InputError` for an empty split, for queries that the corpus lacks, for negatives that are right
    answers or not passages of the corpus, and for a query with fewer scored negatives than are drawn.
    """

    corpus: Corpus
    negatives: Negatives
    split: str
    count: int
    depth: int
    seed: int
    scores_QD: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        queries, shape = self.negatives.queries, self.negatives.rows_QD.shape
        self.query_numbers_Q = np.flatnonzero((queries["split"] == self.split).to_numpy())
        if not len(self.query_numbers_Q):
            raise InputError(NO_QUERIES.format(self.split))
        self.query_ids = queries["query_id"].to_numpy()[self.query_numbers_Q]
        self.texts = self.negatives.texts(self.corpus)["text"].to_numpy(dtype=object)[self.query_numbers_Q]
        assert self.scores_QD is None or self.scores_QD.shape == shape, "lineage ties scores to negatives"
        self.offsets, self.positives = self.corpus.positives(self.query_ids)
        assert np.diff(self.offsets).all(), "a corpus holds no query without a relevant passage"
        self._answers = AnswerSets(*never_negative(self.corpus, list(self.query_ids)))
        self.without_negatives = 0
        """How many queries have no hard negatives; they train on in-batch negatives alone."""
        self.unscored = 0
        """How many negatives within the depth are never drawn because the teacher did not score them."""
        self._check()

    def __len__(self) -> int:
        return len(self.texts)

    def draw(self, examples_B: NDArray[np.int64], times_B: NDArray[np.int64]) -> Groups:
        """The groups of `examples_B` (query numbers in the split), which were seen `times_B` times before."""
        positive_B = self.offsets[examples_B] + self._positive_turn(examples_B, times_B)
        rows_BD, allowed_BD = self._candidates(examples_B)
        queries_B = self.query_numbers_Q[examples_B]
        columns_BN, filled_BN = rotation.turn(allowed_BD, queries_B, times_B, self.count, self.seed, rotation.NEGATIVES)
        negatives_BN = np.where(filled_BN, np.take_along_axis(rows_BD, columns_BN, axis=1), np.int32(-1))
        rows_BK = np.concatenate([self.positives[positive_B][:, None], negatives_BN], axis=1)
        columns_BK = np.concatenate([np.zeros((len(examples_B), 1), np.int64), columns_BN], axis=1)
        return Groups(examples_B, rows_BK, rows_BK >= 0, columns_BK, positive_B)

    def relevant(self, examples_B: NDArray[np.int64], rows_M: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Whether each passage of `rows_M` answers each query (`never_negative`), [B, M]."""
        return self._answers.hold(examples_B[:, None], rows_M[None, :])

    def best_negatives(self, examples_B: NDArray[np.int64], depth: int) -> NDArray[np.int32]:
        """The rows of each query's best negatives, scored by a teacher or not, best first, padded with -1: [B, depth].

        There are fewer columns if the negatives are not as deep. Raises `InputError` as the sampler does.
        """
        rows_BD = np.asarray(self.negatives.rows_QD[self.query_numbers_Q[examples_B], :depth])
        self._refuse_wrong(examples_B, rows_BD)
        return rows_BD

    def _positive_turn(self, examples_B: NDArray[np.int64], times_B: NDArray[np.int64]) -> NDArray[np.int64]:
        """The number of the positive whose turn it is for each example, from 0."""
        available_B = np.diff(self.offsets)[examples_B]
        allowed_BP = np.arange(int(available_B.max(initial=1))) < available_B[:, None]
        queries_B = self.query_numbers_Q[examples_B]
        return rotation.turn(allowed_BP, queries_B, times_B, 1, self.seed, rotation.POSITIVES)[0][:, 0]

    def _candidates(self, examples_B: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
        """The rows of the best negatives, and which of them may be drawn, [B, D]."""
        numbers_B = self.query_numbers_Q[examples_B]
        rows_BD = np.asarray(self.negatives.rows_QD[numbers_B, : self.depth])
        allowed_BD = rows_BD >= 0
        if self.scores_QD is not None:
            allowed_BD &= ~np.isnan(self.scores_QD[numbers_B, : self.depth])
        return rows_BD, allowed_BD

    def _check(self) -> None:
        """Read every negative once, in blocks of queries; refuse wrong ones and count the missing and unscored."""
        for examples_B in chunks(len(self), QUERIES_AT_ONCE):
            rows_BD, allowed_BD = self._candidates(examples_B)
            self._refuse_wrong(examples_B, rows_BD)
            available_B, drawn_B = (rows_BD >= 0).sum(axis=1), allowed_BD.sum(axis=1)
            if (few_B := drawn_B < np.minimum(available_B, self.count)).any():
                place = int(np.argmax(few_B))
                raise InputError(
                    f"the teacher scored {drawn_B[place]} of the best {self.depth} negatives of query "
                    f"{self.query_ids[examples_B[place]]!r}, but {self.count} are drawn; raise negatives_scored "
                    "or depth of `score-pairs`, or lower negatives_per_query of this training"
                )
            self.without_negatives += int((available_B == 0).sum())
            self.unscored += int((available_B - drawn_B).sum())

    def _refuse_wrong(self, examples_B: NDArray[np.int64], rows_BD: NDArray[np.int32]) -> None:
        """Refuse negatives that are not passages of the corpus or that are right answers."""
        if rows_BD.max(initial=-1) >= self.corpus.passage_count:
            raise InputError("the negatives name passages that the corpus lacks; make them again with this corpus")
        wrong_BD = self._answers.hold(examples_B[:, None], rows_BD)
        if wrong_BD.any():
            place, column = np.argwhere(wrong_BD)[0]
            passage = self.corpus.passage_ids[rows_BD[place, column]].item()
            query = self.query_ids[examples_B[place]]
            raise InputError(
                f"passage {passage!r} answers {self.split} query {query!r} but is among its negatives; "
                "make them again with `stillhouse bm25` or `stillhouse mine`"
            )
