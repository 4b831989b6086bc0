"""A teacher's scores of positives and negatives; `score-pairs` writes them and distillation reads them.

Shapes: Q queries, D negatives' depth, P positives of a split, B examples, K candidates.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from stillhouse.arrays import save_array
from stillhouse.artifacts import write_json
from stillhouse.curves import TEACHER
from stillhouse.errors import InputError
from stillhouse.retrieval.fine_tuning.fused_teacher import FusedTeacher
from stillhouse.retrieval.fine_tuning.groups import Groups, GroupSampler

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
    """Write `teacher.json` next to a training's curves: `choice.json` and what the training did with the teacher.

    Nothing is written for a teacher of an earlier version, which has no `choice.json`.
    """
    if (folder / CHOICE).is_file():
        write_json(curves / TEACHER, json.loads((folder / CHOICE).read_text(encoding="utf-8")) | {"used": used})


def is_ahead(folder: Path) -> bool:
    """Whether a teacher ranked the dev candidates better than its student (`FusedTeacher.ahead`)."""
    try:
        return bool(json.loads((folder / CHOICE).read_text(encoding="utf-8"))["ahead"])
    except (OSError, ValueError, KeyError):
        raise InputError(
            f"{folder} has no {CHOICE}: an earlier version made it; run `stillhouse score-pairs` again"
        ) from None


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
            raise InputError("the teacher lacks scores of positives; run `stillhouse score-pairs` with these negatives")

    def of(self, groups: Groups) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Scores float32 [B, K] and which candidates have one, [B, K]; other scores are 0."""
        scores_BD = np.asarray(self._negative_scores_QD[self._numbers_Q[groups.examples_B]])
        scores_BK = np.take_along_axis(scores_BD, groups.columns_BK, axis=1)
        scores_BK[:, 0] = self._positive_scores_P[groups.positive_B]
        known_BK = groups.candidate_BK & ~np.isnan(scores_BK)
        return np.where(known_BK, scores_BK, np.float32(0)), known_BK
