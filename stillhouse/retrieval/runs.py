"""TREC run files: `query_id Q0 passage_id rank score system`, one line a retrieved passage, ranks from 1.

Shapes: Q queries, K the depth of the ranking. A ranking is a pair of matrices, `rows_QK` (int32 rows of
`passages.parquet`, best first, padded with -1) and `scores_QK` (float32; the value under a padded row is ignored).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from stillhouse.errors import InputError

COLUMNS = ("query_id", "q0", "passage_id", "rank", "score", "system")
LINE = "%s %s %s %d %.9g %s\n"  # nine significant digits tell any two float32 values apart
WRITTEN_AT_ONCE = 100_000  # lines


def order_by_score(scores_QK: np.ndarray, rows_QK: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorts every ranking by score, best first; equal scores stand in corpus order and padding (-1) at the end.

    Returns `(scores_QK, rows_QK)` as new arrays: float32, with -inf under padded rows, and int32.
    """
    assert scores_QK.shape == rows_QK.shape and rows_QK.ndim == 2, (scores_QK.shape, rows_QK.shape)
    rows_QK = np.asarray(rows_QK, dtype=np.int32)
    padded_QK = rows_QK < 0
    scores_QK = np.where(padded_QK, np.float32(-np.inf), np.asarray(scores_QK, dtype=np.float32))
    assert not np.isnan(scores_QK).any(), "a score is NaN"
    order_QK = np.lexsort((rows_QK, -scores_QK, padded_QK), axis=1)
    return np.take_along_axis(scores_QK, order_QK, axis=1), np.take_along_axis(rows_QK, order_QK, axis=1)


def reordered(rows_QK: np.ndarray, query_P: np.ndarray, rank_P: np.ndarray, scores_P: np.ndarray) -> np.ndarray:
    """Scores float32 [Q, K] that put the re-scored passages first, and the others after them in their old order.

    Re-scored is the passage at (query_P[i], rank_P[i]); it keeps its new score. The others get whole steps below
    their query's lowest new score, which say nothing but their order.
    """
    scores_QK = np.full(rows_QK.shape, np.nan, dtype=np.float32)
    scores_QK[query_P, rank_P] = scores_P
    others_QK = np.isnan(scores_QK)
    lowest_Q1 = np.min(np.where(others_QK, np.inf, scores_QK), axis=1, keepdims=True, initial=np.inf)
    lowest_Q1 = np.where(np.isfinite(lowest_Q1), lowest_Q1, 0.0)
    return np.where(others_QK, lowest_Q1 - np.cumsum(others_QK, axis=1), scores_QK).astype(np.float32)


def write_run(
    path: Path,
    query_ids: Sequence[str],
    passage_ids: Sequence[str],
    rows_QK: np.ndarray,
    scores_QK: np.ndarray,
    system: str,
) -> None:
    """Writes a ranking as a TREC run file, ordered by `order_by_score`; a query without results has no line.

    `passage_ids` are all the corpus's, in corpus order: `rows_QK` points into them. float32 scores read back exactly.
    Raises `InputError` for an id that a run file cannot hold, because it has white space in it or is empty.
    """
    assert len(query_ids) == len(rows_QK), (len(query_ids), len(rows_QK))
    scores_QK, rows_QK = order_by_score(scores_QK, rows_QK)
    query_Q, passage_N = np.asarray(query_ids, dtype=object), np.asarray(passage_ids, dtype=object)
    query_index, rank_index = np.nonzero(rows_QK >= 0)
    scores = scores_QK[query_index, rank_index]
    assert np.isfinite(scores).all(), "a score is infinite"
    lines = pd.DataFrame(
        {
            "query_id": query_Q[query_index],
            "q0": "Q0",
            "passage_id": passage_N[rows_QK[query_index, rank_index]],
            "rank": rank_index + 1,
            "score": scores.astype(np.float64),
            "system": system,
        },
        columns=COLUMNS,
    )
    for column in ("query_id", "passage_id", "system"):
        _refuse_white_space(lines[column], column.replace("_", " "))
    # No id holds a tab, a space or a line end, and quotes are ordinary characters of an id: nothing needs quoting.
    with path.open("w", encoding="utf-8", newline="") as file:
        for start in range(0, len(lines), WRITTEN_AT_ONCE):
            block = lines.iloc[start : start + WRITTEN_AT_ONCE]
            file.write("".join([LINE % line for line in zip(*(block[name].tolist() for name in COLUMNS))]))


def _refuse_white_space(ids: pd.Series, what: str) -> None:
    distinct = pd.Series(ids.unique(), dtype="str")
    bad = distinct[~distinct.str.fullmatch(r"\S+")]
    if len(bad):
        raise InputError(
            f"{what} {bad.iloc[0]!r} is empty or has white space in it, which a TREC run file cannot hold; "
            "change the id in the source and run `stillhouse ingest` again"
        )


def read_run(path: Path) -> pd.DataFrame:
    """Reads a TREC run file: `query_id` (str), `passage_id` (str), `rank` (int64), `score` (float32), in file order.

    Raises `InputError` when the file is missing or is not a run.
    """
    if not path.is_file():
        raise InputError(f"{path} does not exist; `stillhouse retrieve` or `stillhouse lexical` writes run files")
    kinds = {"query_id": "str", "q0": "str", "passage_id": "str", "rank": "int64", "score": "float64", "system": "str"}
    try:
        lines = pd.read_csv(
            path,
            sep=r"\s+",
            names=list(COLUMNS),
            dtype=kinds,
            keep_default_na=False,
            quoting=3,
            encoding="utf-8",
            float_precision="round_trip",
        )
        if not isinstance(lines.index, pd.RangeIndex):
            raise ValueError("a line has more than six columns")
    except (ValueError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} is not a TREC run file (`query_id Q0 passage_id rank score system` in every line): {error}"
        ) from None
    lines["score"] = lines["score"].astype(np.float32)
    return lines[["query_id", "passage_id", "rank", "score"]]


def top_rows(
    path: Path, corpus_index: pd.Index | Sequence[str], depth: int
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The first `depth` passages of every query of a run file, as corpus rows.

    `corpus_index` holds the passage ids in corpus order. Returns `(query_ids, rows_QK, scores_QK)`: the queries in
    the file's order, rows int32 padded with -1, scores float32 padded with -inf, K = `depth`.
    Raises `InputError` when the run names a passage that the corpus does not have.
    """
    lines = read_run(path)
    corpus_index = corpus_index if isinstance(corpus_index, pd.Index) else pd.Index(list(corpus_index), dtype="str")
    query_number, query_ids = pd.factorize(lines["query_id"])
    place = lines.groupby(query_number)["rank"].rank(method="first").to_numpy().astype(np.int64) - 1
    kept = place < depth
    rows = corpus_index.get_indexer(pd.Index(lines["passage_id"][kept]))
    if (rows < 0).any():
        missing = lines["passage_id"][kept].to_numpy()[rows < 0][0]
        raise InputError(f"{path} names passage {missing!r}, which the corpus does not have; make the run again")
    rows_QK = np.full((len(query_ids), depth), -1, dtype=np.int32)
    scores_QK = np.full((len(query_ids), depth), -np.inf, dtype=np.float32)
    rows_QK[query_number[kept], place[kept]] = rows
    scores_QK[query_number[kept], place[kept]] = lines["score"].to_numpy()[kept]
    return [str(query_id) for query_id in query_ids], rows_QK, scores_QK
