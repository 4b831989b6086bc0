"""TREC run files: `query_id Q0 passage_id rank score system`, one line per retrieved passage, ranks from 1.

Evaluators like trec_eval do not read the rank. They sort by score in single precision and order ties by descending
passage id. A ranking with ties would be a different ranking there, and its figures would depend on passage ids. The
scores written here decrease strictly with the rank in float32, so every tool sees the same order (`strictly_falling`).

Shapes: Q queries, K the depth of the ranking. A ranking is a pair of matrices, `rows_QK` (int32 rows of
`passages.parquet`, best first, padded with -1) and `scores_QK` (float32; the values of padding are ignored).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import csv

from stillhouse.core.errors import InputError
from stillhouse.corpus.passage_ids import PassageIds
from stillhouse.corpus.sources.lines import DAMAGED, open_binary
from stillhouse.evaluation.rankings import order_by_score

COLUMNS = ("query_id", "q0", "passage_id", "rank", "score", "system")
LINE = "%s Q0 %s %d %.9g %s\n"  # nine significant digits tell any two float32 values apart
WRITTEN_AT_ONCE = 100_000  # lines
READ_AT_ONCE = 1 << 24  # bytes
KEPT = ("query_id", "passage_id", "rank", "score")
TEXT = pa.dictionary(pa.int32(), pa.string())
MAGNITUDE = 0x7FFFFFFF
LARGEST = int(np.finfo(np.float32).max.view(np.int32))


def reordered(rows_QK: np.ndarray, query_P: np.ndarray, rank_P: np.ndarray, scores_P: np.ndarray) -> np.ndarray:
    """Scores float32 [Q, K] that put the re-scored passages first and the others after them in their old order.

    The passage at (query_P[i], rank_P[i]) is re-scored and keeps its new score. The others get scores in steps of 1
    below their query's lowest new score, which only express their order.
    """
    scores_QK = np.full(rows_QK.shape, np.nan, dtype=np.float32)
    scores_QK[query_P, rank_P] = scores_P
    others_QK = np.isnan(scores_QK)
    lowest_Q1 = np.min(np.where(others_QK, np.inf, scores_QK), axis=1, keepdims=True, initial=np.inf)
    lowest_Q1 = np.where(np.isfinite(lowest_Q1), lowest_Q1, 0.0)
    return np.where(others_QK, lowest_Q1 - np.cumsum(others_QK, axis=1), scores_QK).astype(np.float32)


def strictly_falling(scores_QK: np.ndarray, length_Q: np.ndarray) -> np.ndarray:
    """Lower every score that is not below the previous one to the next smaller float32; leave the others unchanged.

    `scores_QK` is float32, finite and never increasing in the first `length_Q[i]` columns of row i; later columns are
    returned unchanged. The bits of float32 values, as integers with the sign applied to the magnitude, have the order
    of the values without gaps, so this is a running minimum over integers. If a ranking reaches the lowest float32, the
    scores before it are raised instead.
    """
    assert scores_QK.dtype == np.float32, scores_QK.dtype
    depth = scores_QK.shape[1]
    place_K = np.arange(depth, dtype=np.int64)
    bits_QK = scores_QK.view(np.int32).astype(np.int64)
    number_QK = np.where(bits_QK < 0, -(bits_QK & MAGNITUDE), bits_QK)
    number_QK = np.minimum.accumulate(number_QK + place_K, axis=1) - place_K
    number_QK = np.maximum(number_QK, np.asarray(length_Q, dtype=np.int64)[:, None] - 1 - place_K - LARGEST)
    # The sign bit alone would be -0.0, so the number 0 gets no sign.
    magnitude_QK = np.abs(number_QK).astype(np.uint32)
    bits_QK = magnitude_QK | ((number_QK < 0).astype(np.uint32) << np.uint32(31))
    return np.where(place_K < np.asarray(length_Q)[:, None], bits_QK.view(np.float32), scores_QK)


def write_run(
    path: Path,
    query_ids: Sequence[str],
    passage_ids: PassageIds,
    rows_QK: np.ndarray,
    scores_QK: np.ndarray,
    system: str,
) -> None:
    """Write a ranking as a TREC run file, ordered by `order_by_score`; a query without results has no line.

    `passage_ids` are all ids of the corpus in corpus order, which `rows_QK` points into. Distinct scores read back
    exactly; of equal scores, `strictly_falling` lowers all but the first. Raises `InputError` for an id that a run file
    cannot hold because it is empty or contains white space.
    """
    assert len(query_ids) == len(rows_QK), (len(query_ids), len(rows_QK))
    scores_QK, rows_QK = order_by_score(scores_QK, rows_QK)
    length_Q = (rows_QK >= 0).sum(axis=1)
    assert np.isfinite(scores_QK[rows_QK >= 0]).all(), "a score is infinite"
    scores_QK = strictly_falling(scores_QK, length_Q)
    query_Q, named_R = np.asarray(query_ids, dtype=object), np.unique(rows_QK[rows_QK >= 0])
    passage_R = passage_ids[named_R]
    _refuse_white_space(query_Q[length_Q > 0], "query id")
    _refuse_white_space(passage_R, "passage id")
    _refuse_white_space(np.array([system], dtype=object), "system")
    at_once = max(1, WRITTEN_AT_ONCE // max(1, rows_QK.shape[1]))
    # No id contains a tab, a space or a line end, and quotes are ordinary characters, so nothing needs quoting.
    with path.open("w", encoding="utf-8", newline="") as file:
        for start in range(0, len(rows_QK), at_once):
            rows_BK, scores_BK = rows_QK[start : start + at_once], scores_QK[start : start + at_once]
            query_L, rank_L = np.nonzero(rows_BK >= 0)
            columns = (
                query_Q[start + query_L].tolist(),
                passage_R[np.searchsorted(named_R, rows_BK[query_L, rank_L])].tolist(),
                (rank_L + 1).tolist(),
                scores_BK[query_L, rank_L].tolist(),
                [system] * len(query_L),
            )
            file.write("".join([LINE % line for line in zip(*columns)]))


def _refuse_white_space(ids: np.ndarray, what: str) -> None:
    distinct = pd.Series(ids, dtype="str")
    bad = distinct[~distinct.str.fullmatch(r"\S+")]
    if len(bad):
        raise InputError(
            f"{what} {bad.iloc[0]!r} is empty or contains white space, which a TREC run file cannot hold; "
            "change the id in the source and run `stillhouse ingest` again"
        )


def read_run(path: Path) -> pd.DataFrame:
    """Read a TREC run file of any tool as one ranking per query.

    Returns `query_id` and `passage_id` (categories of str), `rank` (int32, from 1) and `score` (float32): the queries
    in the order in which the file first names them, and their passages by rank. The lines of a query may be scattered.
    Equal ranks are ordered by score, then as in the file. Ranks are renumbered, which closes gaps and fixes ranks from
    0. Ten million lines take 150 MB, and 1.5 GB at the peak of reading. Raises `InputError` if the file is missing, is
    not a run, has a score that is not finite, ranks a passage twice for a query, or has a score that increases with the
    rank, which other tools would read as another ranking.
    """
    if not path.is_file():
        raise InputError(f"{path} does not exist; `stillhouse retrieve` or `stillhouse bm25` writes run files")
    lines = _read_lines(path)
    infinite_L = ~np.isfinite(lines["score"].to_numpy())
    _refuse_lines(path, lines, infinite_L, "has a score that is not finite in single precision; make the run again")
    lines = _by_rank(lines)
    query_L, passage_L = (lines[name].cat.codes.to_numpy().astype(np.int64) for name in ("query_id", "passage_id"))
    repeated = pd.Series(query_L * len(lines["passage_id"].cat.categories) + passage_L).duplicated().to_numpy()
    _refuse_lines(path, lines, repeated, "is listed twice; make the run again")
    lines["rank"] = places(query_L)
    rises_L = ((lines["rank"] > 1) & (lines["score"].diff() > 0)).to_numpy()
    why = "has a score higher than that of the rank before, so tools that sort by score would see another ranking"
    _refuse_lines(path, lines, rises_L, f"{why}; write scores that decrease with the rank")
    return lines


def _refuse_lines(path: Path, lines: pd.DataFrame, bad_L: np.ndarray, why: str) -> None:
    if bad_L.any():
        line = lines[bad_L].iloc[0]
        raise InputError(f"{path}: passage {line['passage_id']!r} for query {line['query_id']!r} {why}")


def _read_lines(path: Path) -> pd.DataFrame:
    """The lines in file order: ids as categories, rank int64, score float32."""
    kinds = dict.fromkeys(COLUMNS, TEXT) | {"rank": pa.int64(), "score": pa.float64()}
    table = pa.table({name: pa.array([], kinds[name]) for name in KEPT})
    options = {
        "read_options": csv.ReadOptions(column_names=list(COLUMNS), use_threads=False),
        "parse_options": csv.ParseOptions(delimiter=" ", quote_char=False, double_quote=False, escape_char=False),
        "convert_options": csv.ConvertOptions(
            column_types=kinds, include_columns=list(KEPT), null_values=[], strings_can_be_null=False
        ),
    }
    blocks = [table]
    try:
        with open_binary(path) as file:
            while block := file.read(READ_AT_ONCE):
                block = block if len(blocks) > 1 else block.removeprefix(b"\xef\xbb\xbf")
                block = _single_spaced(block + file.readline())
                if block.strip(b" \n"):
                    blocks.append(csv.read_csv(pa.BufferReader(block), **options))
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{path} is not a TREC run file (`query_id Q0 passage_id rank score system` in every line): "
            f"{error}; correct it, or make the run again"
        ) from None
    except DAMAGED as error:
        raise InputError(f"{path} is cut off or damaged ({error}); make the run again") from None
    lines = pa.concat_tables(blocks).unify_dictionaries().to_pandas()
    with np.errstate(over="ignore"):  # overflow gives infinity, which is refused
        return lines.astype({"score": np.float32})


def _single_spaced(block: bytes) -> bytes:
    """Complete lines with one space between columns, even if another tool wrote tabs or several spaces."""
    odd = (b"\t", b"  ", b" \n", b"\n ", b"\r")
    if any(each in block for each in odd) or block.startswith(b" ") or block.endswith(b" "):
        block = re.sub(rb"[ \t\r]+", b" ", block)
        block = re.sub(rb"^ | $", b"", block, flags=re.MULTILINE)
    return block


def _by_rank(lines: pd.DataFrame) -> pd.DataFrame:
    """The lines sorted by query, then by rank."""
    query_L = pd.factorize(lines["query_id"])[0]
    rank_L, score_L = lines["rank"].to_numpy(), lines["score"].to_numpy()
    same_L = np.diff(query_L) == 0
    if (np.diff(query_L) >= 0).all() and (np.diff(rank_L)[same_L] > 0).all():
        return lines
    return lines.iloc[np.lexsort((-score_L, rank_L, query_L))].reset_index(drop=True)


def places(query_L: np.ndarray) -> np.ndarray:
    """1, 2, ... within each query (numbers from 0), int32; the lines of a query must be adjacent."""
    start = np.flatnonzero(np.diff(query_L, prepend=-1))
    return (np.arange(len(query_L)) - np.repeat(start, np.diff(start, append=len(query_L))) + 1).astype(np.int32)


def ranked_rows(path: Path, passage_ids: PassageIds) -> tuple[list[str], np.ndarray]:
    """The passages of every query of a run file, as rows of the corpus with `passage_ids`.

    Returns `(query_ids, rows_QK)`: the queries in the file's order, rows int32, best first and padded with -1. Raises
    `InputError` if the run names a passage that the corpus does not have.
    """
    lines = read_run(path)
    query_number, query_ids = pd.factorize(lines["query_id"])
    place = lines["rank"].to_numpy() - 1
    rows_QK = np.full((len(query_ids), place.max(initial=-1) + 1), -1, dtype=np.int32)
    rows_QK[query_number, place] = rows_of_run(path, lines, passage_ids)
    return [str(query_id) for query_id in query_ids], rows_QK


def rows_of_run(path: Path, lines: pd.DataFrame, passage_ids: PassageIds) -> np.ndarray:
    """The corpus row of every line from `read_run`, int32.

    Raises `InputError` if the run names a passage that the corpus does not have.
    """
    known = passage_ids.find(lines["passage_id"].cat.categories)
    rows = known[lines["passage_id"].cat.codes.to_numpy()].astype(np.int32)
    if (rows < 0).any():
        missing = lines["passage_id"][rows < 0].iloc[0]
        raise InputError(f"{path} names passage {missing!r}, which the corpus does not have; make the run again")
    return rows
