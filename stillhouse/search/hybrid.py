"""Hybrid search: BM25 and the dense index both supply candidates, and each candidate's scores are fused.

Shape suffixes: Q queries, K candidates of a query, D width of the vectors, F = 2 or 3 scores (BM25's, the retriever's
and, where token states are stored, that of late interaction).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from stillhouse.core.arrays import evenly_spaced
from stillhouse.core.artifacts import write_json
from stillhouse.core.errors import InputError
from stillhouse.evaluation.rankings import first_kept, order_by_score, repeated
from stillhouse.search.bm25 import BM25
from stillhouse.search.filtered import FilteredBM25, FilteredIndex
from stillhouse.search.fusion import convex_combination, fit_weights
from stillhouse.search.late_interaction import LateInteraction, QueryReader
from stillhouse.search.vector_index import VectorIndex

if TYPE_CHECKING:
    from stillhouse.evaluation.relevance import JudgedQueries  # imports pandas, which would delay an answer

FILE, INDEX, TOKENS = "hybrid.json", "bm25", "tokens"
METHODS = ("weights", "convex", "dense")
SHARE = 0.7
"""The retriever's weight in a convex combination."""
PER_SPREAD = 0.3
"""BM25's weight by the spread of the retriever's products, where weights are not fitted (docs/findings.md)."""
SPREAD_PASSAGES = 1000
QUERIES_AT_ONCE = 256
COMPARED = 50
"""Late interaction compares so many of the best passages of BM25 and of the retriever; others get the lowest score."""
LATE, LEXICAL = 8.0, 0.25
"""Without labels, late interaction weighs `LATE` times the retriever, and BM25 `LEXICAL` times what it has without it
(docs/findings.md)."""
LATE_UNREAD, LEXICAL_UNREAD = 4.0, 1.5
"""The same where the retriever reads the language less well than BM25 (`lexical_factor`)."""


@dataclass(frozen=True)
class Fusion:
    """How BM25 and the retriever rank together.

    `weights`: bm25 · BM25 score + dense · inner product of the vectors + late · score of late interaction. `convex`:
    the first two with scores scaled to [0, 1] per query (`convex_combination`). `dense`: the retriever alone. Each
    ranking supplies its best `depth` passages as candidates.
    """

    method: str = "dense"
    bm25: float = 0.0
    dense: float = 1.0
    depth: int = 100
    late: float = 0.0

    def __str__(self) -> str:
        if self.method == "weights":
            late = f" + {self.late:.3g} · late interaction" if self.late else ""
            return f"{self.bm25:.3g} · BM25 + {self.dense:.3g} · retriever{late}"
        if self.method == "convex":
            return f"{self.bm25:.3g} · scaled BM25 + {self.dense:.3g} · scaled retriever"
        return "the retriever alone"


@dataclass(frozen=True)
class Candidates:
    """The candidates of both rankings: rows int32 [Q, K] padded with -1, and scores [Q, K, F].

    `lexical_QK` and `dense_QK` are the rankings that supplied them.
    """

    rows_QK: NDArray[np.int32]
    scores_QKF: NDArray[np.float32]
    lexical_QK: NDArray[np.int32]
    dense_QK: NDArray[np.int32]


class HybridIndex:
    """A BM25 index and a vector index of the same passages, with or without the states of their tokens."""

    def __init__(self, bm25: BM25, index: VectorIndex, late: LateInteraction | None = None) -> None:
        if len(bm25) != len(index):
            raise InputError(
                f"the BM25 index has {len(bm25)} passages and the vector index {len(index)}; make both from one corpus"
            )
        self.bm25 = bm25
        self.index = index
        self.late = late

    def among(self, rows_F: NDArray[np.int32]) -> HybridIndex:
        """The passages `rows_F` (ascending) alone, with the word frequencies of all."""
        bm25, index = FilteredBM25(self.bm25, rows_F), FilteredIndex(self.index, rows_F)
        return HybridIndex(cast(BM25, bm25), cast(VectorIndex, index), self.late)

    def candidates(
        self, texts: Sequence[str], vectors_QD: NDArray[np.float32], depth: int, gpu: bool = False
    ) -> Candidates:
        """The union of the best `depth` passages of both rankings for each query, BM25 first."""
        lexical_QK, _ = self.bm25.search(texts, depth)
        dense_QK, _ = self.index.search(vectors_QD, depth, gpu=gpu)
        near, far = slice(COMPARED if self.late else None), slice(COMPARED if self.late else depth, None)
        both_QK = np.concatenate([part[:, of] for of in (near, far) for part in (lexical_QK, dense_QK)], axis=1)
        rows_QK = first_kept(both_QK, (both_QK >= 0) & ~repeated(both_QK), both_QK.shape[1])
        scores = [self.bm25.scores_of(texts, rows_QK), self.products(vectors_QD, rows_QK)]
        if self.late:
            compared_QK = np.where(np.arange(rows_QK.shape[1]) < 2 * COMPARED, rows_QK, -1)
            scores.append(self.late.scores_of(texts, compared_QK))
        return Candidates(rows_QK, np.stack(scores, axis=2), lexical_QK, dense_QK)

    def search(
        self, fusion: Fusion, texts: Sequence[str], vectors_QD: NDArray[np.float32], depth: int, gpu: bool = False
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Rows int32 [Q, depth] and fused scores float32 [Q, depth], best first, padded with -1.

        Ties are in corpus order. Each ranking supplies at least `depth` candidates, because passages that are not
        candidates cannot be ranked.
        """
        rows_QK = np.full((len(texts), depth), -1, dtype=np.int32)
        scores_QK = np.full((len(texts), depth), -np.inf, dtype=np.float32)
        ranked = self if fusion.late else HybridIndex(self.bm25, self.index)
        for start in range(0, len(texts), QUERIES_AT_ONCE):
            part = slice(start, start + QUERIES_AT_ONCE)
            found = ranked.candidates(texts[part], vectors_QD[part], max(depth, fusion.depth), gpu)
            fused_BK, ordered_BK = order_by_score(fused_scores(fusion, found.rows_QK, found.scores_QKF), found.rows_QK)
            width = min(depth, ordered_BK.shape[1])
            rows_QK[part, :width], scores_QK[part, :width] = ordered_BK[:, :width], fused_BK[:, :width]
        return rows_QK, scores_QK

    def products(self, vectors_QD: NDArray[np.float32], rows_QK: NDArray[np.int32]) -> NDArray[np.float32]:
        """Inner products of the queries' vectors with vectors of the index, float32 [Q, K]; 0 for padding."""
        scores_QK = np.zeros(rows_QK.shape, dtype=np.float32)
        query_P, column_P = np.nonzero(rows_QK >= 0)
        scores_QK[query_P, column_P] = self.index.products(vectors_QD, query_P, rows_QK[query_P, column_P])
        return scores_QK


def fused_scores(fusion: Fusion, rows_QK: NDArray[np.int32], scores_QKF: NDArray[np.float32]) -> NDArray[np.float32]:
    """The fused score of every candidate, float32 [Q, K]; rows are padded with -1."""
    if fusion.method == "convex":
        bm25_QK, dense_QK = np.moveaxis(scores_QKF[:, :, :2], 2, 0)
        return convex_combination(bm25_QK, dense_QK, rows_QK >= 0, fusion.dense)
    weights_F = np.array([fusion.bm25, fusion.dense, fusion.late])[: scores_QKF.shape[2]]
    return (scores_QKF.astype(np.float64) @ weights_F).astype(np.float32)


def unfitted(method: str, depth: int, index: VectorIndex, late: bool = False, factor: float = 1.0) -> Fusion:
    """The fusion of a method that needs no judged queries: `convex`, or else `spread`.

    `spread` is a weighted sum in which BM25 counts `PER_SPREAD` times the spread of the index's products, times
    `factor` (`lexical_factor`). Unlike `convex`, it keeps the size of BM25's scores, which are low where a passage has
    few of the query's words. An index without spread gets `convex`.
    """
    spread = 0.0 if method == "convex" else product_spread(index)
    if spread <= 0:
        return Fusion("convex", 1.0 - SHARE, SHARE, depth)
    lexical, weight = 1.0, 0.0
    if late:
        lexical, weight = (LEXICAL, LATE) if factor == 1 else (LEXICAL_UNREAD, LATE_UNREAD)
    return Fusion("weights", float(f"{PER_SPREAD * spread * lexical * factor:.4g}"), 1.0, depth, weight)


def product_spread(index: VectorIndex) -> float:
    """The standard deviation of a passage's inner products with other passages, as a mean over passages.

    At most `SPREAD_PASSAGES` are read, evenly spaced. With fewer than two others to compare with, it is 0.
    """
    rows_P = evenly_spaced(len(index), SPREAD_PASSAGES).astype(np.int32)
    if len(rows_P) < 3:
        return 0.0
    vectors_PD = index.vectors(rows_P).astype(np.float64)
    products_PP = vectors_PD @ vectors_PD.T
    others_PP = products_PP[~np.eye(len(rows_P), dtype=np.bool_)].reshape(len(rows_P), -1)
    return float(others_PP.std(axis=1).mean())


def fit_fusion(
    found: Candidates, positive_QK: NDArray[np.bool_], known_QK: NDArray[np.bool_], depth: int
) -> Fusion | None:
    """The weights that make the positives most likely (`fit_weights`), or None if no query can be fitted on.

    `known_QK` marks the candidates that are known to be right or wrong. Others are left out.
    """
    try:
        weights_F = fit_weights(found.scores_QKF, known_QK & (found.rows_QK >= 0), positive_QK)
    except ValueError:
        return None
    # Six digits, so that another order of summation on another machine does not change a ranking.
    bm25, dense, *late = (float(f"{weight:.6g}") for weight in weights_F)
    return Fusion("weights", bm25, dense, depth, *late)


def write_hybrid(folder: Path, fusion: Fusion, bm25: BM25) -> None:
    """Write `hybrid.json` and, if the fusion uses BM25, its index. The tokens of late interaction are there already."""
    write_json(folder / FILE, {name: value for name, value in asdict(fusion).items() if name != "late" or value})
    if fusion.method != "dense":
        bm25.save(folder / INDEX)


def read_fusion(folder: Path) -> Fusion:
    """Read the fusion that `write_hybrid` wrote. Raises `InputError` for any other folder."""
    try:
        fusion = Fusion(**json.loads((folder / FILE).read_text(encoding="utf-8")))
        weights = [fusion.bm25, fusion.dense, fusion.late]
        sound = fusion.method in METHODS and fusion.depth > 0 and all(np.isfinite(weights))
    except (OSError, ValueError, TypeError):
        sound = False
    if not sound:
        raise InputError(f"{folder} has no valid {FILE} from `stillhouse hybrid`; run that step again")
    return fusion


def read_hybrid(folder: Path, index: VectorIndex, reader: QueryReader) -> HybridSearch:
    """Read what `write_hybrid` wrote, for the vector index of the same passages and the retriever that made it.

    Raises `InputError` for any other folder, and for an index of another size.
    """
    fusion = read_fusion(folder)
    if fusion.method == "dense":
        return HybridSearch(fusion, None)
    late = LateInteraction(folder / TOKENS, reader) if fusion.late else None
    return HybridSearch(fusion, HybridIndex(BM25.load(folder / INDEX), index, late))


@dataclass(frozen=True)
class HybridSearch:
    """A fusion that is ready to search (`searcher.ranked`); `both` is None if the retriever ranks alone."""

    fusion: Fusion
    both: HybridIndex | None

    def among(self, rows_F: NDArray[np.int32]) -> HybridSearch:
        """The same among the passages `rows_F` (ascending) alone."""
        return replace(self, both=self.both and self.both.among(rows_F))


FEWEST_TO_FIT = 30
"""With fewer labelled queries, `auto` fits no weights: these may leave the retriever none (docs/findings.md)."""


def can_fit(judged: JudgedQueries) -> bool:
    """Whether `auto` fits weights on these queries."""
    return judged.labelled and len(judged) >= FEWEST_TO_FIT


@dataclass(frozen=True)
class MeasuredRankings:
    """A fitted fusion, and RR@10 float64 [Q] of `bm25`, `dense` and `hybrid` on the queries that it was fitted on.

    `rows_QK` are the candidates of BM25 and the retriever, int32, padded with -1. Fitting two weights on a hundred
    queries or more raises the figure of `hybrid` by less than 0.001.
    """

    fusion: Fusion
    reciprocal_ranks: Mapping[str, NDArray[np.float64]]
    rows_QK: NDArray[np.int32]


def measure_rankings(
    hybrid: HybridIndex,
    judged: JudgedQueries,
    vectors_QD: NDArray[np.float32],
    depth: int,
    method: str = "auto",
    gpu: bool = False,
    factor: float = 1.0,
) -> MeasuredRankings:
    """Fit the fusion on judged queries with the vectors `vectors_QD`, and measure all three rankings on them.

    `auto` fits weights on labelled queries if there are enough (`can_fit`), and else uses `spread` with `factor`.
    Queries made from the corpus repeat its words, so weights fitted on them trust BM25 too much.
    """
    found = hybrid.candidates(judged.texts, vectors_QD, depth, gpu)
    ranks = {"bm25": judged.reciprocal_ranks(found.lexical_QK), "dense": judged.reciprocal_ranks(found.dense_QK)}
    fusion = None
    if method == "weights" or (method == "auto" and can_fit(judged)):
        fusion = fit_fusion(found, judged.right(found.rows_QK), judged.judged(found.rows_QK), depth)
    fusion = fusion or unfitted(method, depth, hybrid.index, hybrid.late is not None, factor)
    _, hybrid_QK = order_by_score(fused_scores(fusion, found.rows_QK, found.scores_QKF), found.rows_QK)
    return MeasuredRankings(fusion, ranks | {"hybrid": judged.reciprocal_ranks(hybrid_QK)}, found.rows_QK)
