"""A teacher's scores of positives and negatives: fused from several kinds, written by `score-pairs`, read by trainings.

Shape suffixes: N pairs, Q queries, K candidates of a query, F kinds of scores, D negatives' depth, P positives of a
split, B examples.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from stillhouse.core.arrays import save_array
from stillhouse.core.artifacts import write_json
from stillhouse.core.curves import TEACHER
from stillhouse.core.errors import InputError
from stillhouse.evaluation.rankings import order_by_score
from stillhouse.search.fusion import fit_weights
from stillhouse.training.groups import Groups, GroupSampler

CROSS_ENCODER, RETRIEVER, BM25, FUSED = "cross_encoder", "retriever", "bm25", "fused"
GENERATOR = "generator"
"""The likelihood of the query given the passage, by a language model (UPR, Sachan et al. 2022)."""
CUTOFF = 10


@dataclass(frozen=True)
class Pairs:
    """Pairs of a query and a candidate with their scores of every kind."""

    query_N: NDArray[np.int64]
    positive_N: NDArray[np.bool_]
    kinds: Sequence[str]
    scores_NF: NDArray[np.float32]

    def of(self, chosen_N: NDArray[np.bool_]) -> Pairs:
        return Pairs(self.query_N[chosen_N], self.positive_N[chosen_N], self.kinds, self.scores_NF[chosen_N])


@dataclass(frozen=True)
class FusedTeacher:
    """A teacher chosen on judged pairs that none of the scores was trained on.

    `weights` belong to the chosen teacher. `reciprocal_ranks` is the mean RR@10 of each kind and of each fusion over
    `queries` queries. `student` is the kind of score that the teacher teaches.
    """

    chosen: str
    weights: Mapping[str, float]
    reciprocal_ranks: Mapping[str, float]
    student: str
    queries: int

    @property
    def ahead(self) -> bool:
        """Whether the teacher ranks better than the student; True if there is no student to compare with."""
        if self.student not in self.reciprocal_ranks:
            return True
        better = self.reciprocal_ranks[self.chosen] > self.reciprocal_ranks[self.student]
        return better and any(self.weights.values())

    def scores(self, pairs: Pairs) -> NDArray[np.float32]:
        """The teacher's score of every pair, float32 [N]; the softmax over a query's candidates is calibrated."""
        weights_F = np.array([self.weights.get(kind, 0.0) for kind in pairs.kinds])
        return (pairs.scores_NF.astype(np.float64) @ weights_F).astype(np.float32)

    def one_kind(self, kind: str) -> FusedTeacher:
        """A teacher with the raw scores of one kind, as in the papers."""
        return replace(self, chosen=kind, weights={kind: 1.0})

    def __str__(self) -> str:
        formula = " + ".join(f"{weight:.3g} · {kind}" for kind, weight in self.weights.items() if weight)
        figures = ", ".join(f"{kind} {value:.3f}" for kind, value in self.reciprocal_ranks.items())
        if self.student not in self.reciprocal_ranks:
            verdict = "there is no student to compare it with"
        elif self.ahead:
            verdict = "it beats its student"
        else:
            verdict = "IT DOES NOT BEAT ITS STUDENT, which has nothing to learn from it"
        return f"teacher {self.chosen} = {formula or 0}; RR@10 of {self.queries} dev queries: {figures}; {verdict}"


def unmeasured(kind: str) -> FusedTeacher:
    """A teacher of one kind whose ranking was not measured on judged pairs."""
    return FusedTeacher(kind, {kind: 1.0}, {}, RETRIEVER, 0)


def choose_teacher(pairs: Pairs) -> FusedTeacher:
    """Fit weights on judged pairs and choose the best teacher: one kind of score, or the fusion of several.

    A teacher of one kind is scaled by its own weight, which calibrates its softmax too. Ties go to the first of
    `pairs.kinds`, then to fewer kinds. The student, the retriever, cannot teach itself. Raises `ValueError` if no query
    has both a positive and a negative.
    """
    candidates = {
        _name([pairs.kinds[column] for column in columns], len(pairs.kinds)): list(columns)
        for count in range(1, len(pairs.kinds) + 1)
        for columns in combinations(range(len(pairs.kinds)), count)
    }
    scores_QKF, candidate_QK, positive_QK = _grid(pairs)
    weights: dict[str, dict[str, float]] = {}
    ranks: dict[str, float] = {}
    for name, columns in candidates.items():
        found_F = fit_weights(scores_QKF[:, :, columns], candidate_QK, positive_QK)
        # Six digits, so that another order of summation on another machine does not change the teacher's scores.
        weights[name] = {pairs.kinds[column]: float(f"{w:.6g}") for column, w in zip(columns, found_F)}
        # A kind ranks as its scores do, also if these make positives so unlikely that its weight is 0.
        by_F = found_F if len(columns) > 1 else np.ones(1)
        fused_QK = scores_QKF[:, :, columns].astype(np.float64) @ by_F
        ranks[name] = float(_reciprocal_ranks(fused_QK, candidate_QK, positive_QK).mean())
    teachers = [name for name in candidates if name != RETRIEVER] or [RETRIEVER]
    chosen = max(teachers, key=lambda name: (any(weights[name].values()), ranks[name]))
    return FusedTeacher(chosen, weights[chosen], ranks, RETRIEVER, len(scores_QKF))


def _name(kinds: Sequence[str], known: int) -> str:
    """The name of kinds of scores as a teacher: the kind, `bm25+retriever` for two of three, `fused` for all."""
    return FUSED if len(kinds) == known > 1 else "+".join(sorted(kinds))


def _grid(pairs: Pairs) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_]]:
    """The pairs as a grid: scores [Q, K, F], which places are candidates, and which candidates are positives."""
    _, query_N = np.unique(pairs.query_N, return_inverse=True)
    order_N = np.argsort(query_N, kind="stable")
    query_N = query_N[order_N]
    sizes_Q = np.bincount(query_N)
    column_N = np.arange(len(query_N)) - np.repeat(np.cumsum(sizes_Q) - sizes_Q, sizes_Q)
    shape = (len(sizes_Q), int(sizes_Q.max(initial=0)))
    scores_QKF = np.zeros((*shape, len(pairs.kinds)), dtype=np.float32)
    scores_QKF[query_N, column_N] = pairs.scores_NF[order_N]
    positive_QK = np.zeros(shape, dtype=np.bool_)
    positive_QK[query_N, column_N] = pairs.positive_N[order_N]
    return scores_QKF, np.arange(shape[1]) < sizes_Q[:, None], positive_QK


def _reciprocal_ranks(
    scores_QK: NDArray[np.float64], candidate_QK: NDArray[np.bool_], positive_QK: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """RR@10 of each query's candidates by score, float64 [Q]. A tie counts against the positive."""
    # Ties rank positives last, so a score that cannot tell candidates apart gets no credit.
    columns_QK = np.broadcast_to(np.arange(scores_QK.shape[1]), scores_QK.shape)
    place_QK = np.where(candidate_QK, columns_QK + np.where(positive_QK, scores_QK.shape[1], 0), -1)
    _, order_QK = order_by_score(scores_QK, place_QK)
    hit_QK = (order_QK >= scores_QK.shape[1])[:, :CUTOFF]
    first_Q = np.argmax(hit_QK, axis=1)
    return np.where(hit_QK.any(axis=1), 1.0 / (first_Q + 1), 0.0)


CHOICE = "choice.json"


@dataclass(frozen=True)
class Teacher:
    """`negative_scores_QD` is aligned with the negatives' rows (NaN: not scored); `positives` has a row for each."""

    queries: pd.DataFrame
    negative_scores_QD: NDArray[np.float32]
    positives: pd.DataFrame

    @classmethod
    def read(cls, folder: Path) -> Teacher:
        queries = pq.read_table(folder / "queries.parquet").to_pandas()
        scores = np.load(folder / "negative_scores.npy", mmap_mode="r")
        return cls(queries, scores, pq.read_table(folder / "positives.parquet").to_pandas())

    def write(self, folder: Path) -> None:
        queries = pa.Table.from_pydict({name: list(self.queries[name]) for name in ("query_id", "split")})
        pq.write_table(queries, folder / "queries.parquet")
        save_array(folder / "negative_scores.npy", self.negative_scores_QD)
        schema = pa.schema([("query_id", pa.string()), ("row", pa.int32()), ("score", pa.float32())])
        columns = {name: list(self.positives[name]) for name in schema.names}
        pq.write_table(pa.Table.from_pydict(columns, schema=schema), folder / "positives.parquet")


def write_choice(folder: Path, found: FusedTeacher) -> None:
    """Write `choice.json` next to the scores: the chosen teacher, and how it and its student rank."""
    write_json(folder / CHOICE, asdict(found) | {"ahead": found.ahead})


def pass_on_choice(folder: Path, curves: Path, used: str) -> None:
    """Write `teacher.json` next to a training's curves: `choice.json` and what the training did with the teacher."""
    write_json(curves / TEACHER, _read_choice(folder) | {"used": used})


def is_ahead(folder: Path) -> bool:
    """Whether a teacher ranked the dev candidates better than its student (`FusedTeacher.ahead`)."""
    return bool(_read_choice(folder)["ahead"])


def _read_choice(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / CHOICE).read_text(encoding="utf-8"))
    return content


class TeacherScores:
    """A teacher's scores for the groups of a sampler that draws scored negatives alone (`GroupSampler`)."""

    def __init__(self, teacher: Teacher, sampler: GroupSampler) -> None:
        self._numbers_Q = sampler.query_numbers_Q
        self._negative_scores_QD = teacher.negative_scores_QD
        ids = teacher.queries["query_id"].to_numpy()[self._numbers_Q]
        scores = teacher.positives.set_index(["query_id", "row"])["score"]
        wanted = pd.MultiIndex.from_arrays([np.repeat(ids, np.diff(sampler.offsets)), sampler.positives])
        self._positive_scores_P = scores.reindex(wanted).to_numpy(dtype=np.float32)
        if np.isnan(self._positive_scores_P).any():
            raise InputError(
                "the teacher has no scores for positives; run `stillhouse score-pairs` with these negatives"
            )

    def of(self, groups: Groups) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Scores float32 [B, K] and which candidates have one, [B, K]; other scores are 0."""
        scores_BD = np.asarray(self._negative_scores_QD[self._numbers_Q[groups.examples_B]])
        scores_BK = np.take_along_axis(scores_BD, groups.columns_BK, axis=1)
        scores_BK[:, 0] = self._positive_scores_P[groups.positive_B]
        known_BK = groups.candidate_BK & ~np.isnan(scores_BK)
        return np.where(known_BK, scores_BK, np.float32(0)), known_BK
