"""Indexes and rankings: BM25, dense and hybrid search, hard negatives, re-ranking, the winner, evaluation."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Mapping

from stillhouse.api.results import BM25Result, Evaluation, Folder, StepResult, Winner
from stillhouse.api.step_function import Setting, runs
from stillhouse.steps import bm25 as bm25_step
from stillhouse.steps import evaluate as evaluate_step
from stillhouse.steps import hybrid as hybrid_step
from stillhouse.steps import index as index_step
from stillhouse.steps import mine as mine_step
from stillhouse.steps import rerank as rerank_step
from stillhouse.steps import retrieve as retrieve_step
from stillhouse.steps import select_best as select_best_step


@runs(bm25_step.STEP, main="bm25")
def bm25(corpus: Folder, output: Folder, **settings: Setting) -> BM25Result:
    """Index a corpus for BM25 (`output/bm25`), rank its dev and test queries, and mine hard negatives.

    The result has the ranking as `run` and the negatives of train and dev queries as `negatives`.

        negatives = stillhouse.bm25(corpus, "work").negatives
    """


@runs(index_step.STEP)
def index(corpus: Folder, retriever: Folder, output: Folder, **settings: Setting) -> StepResult:
    """Encode every passage in float32 and build a faiss index of the vectors in `output/index`.

    Vectors are cached in the work area for later runs of the same model (`cache_gib`).

        index = stillhouse.index(corpus, retriever, "work", kind="ivfsq8")
    """


@runs(mine_step.STEP)
def mine(
    corpus: Folder,
    retriever: Folder,
    index: Folder,
    output: Folder,
    *,
    others: Folder | None = None,
    filter_reranker: Folder | None = None,
    **settings: Setting,
) -> StepResult:
    """Write a retriever's best wrong passages as hard negatives to `output/negatives`.

    `others` are negatives to mix in, for example from BM25; `filter_reranker` is a cross-encoder that leaves out
    candidates that are right after all.

        mined = stillhouse.mine(corpus, retriever, index, "work/mined", others=negatives)

    Raises `InputError` for an index of another corpus or retriever.
    """


@runs(hybrid_step.STEP)
def hybrid(
    corpus: Folder, retriever: Folder, index: Folder, bm25: Folder, output: Folder, **settings: Setting
) -> StepResult:
    """Fit the fusion of BM25 and a retriever on the dev queries, into `output/hybrid`."""


@runs(retrieve_step.STEP)
def retrieve(
    corpus: Folder,
    retriever: Folder,
    index: Folder,
    output: Folder,
    *,
    hybrid: Folder | None = None,
    **settings: Setting,
) -> StepResult:
    """Search the index for every dev and test query, into `output/run`: a TREC run file for each split.

    With `hybrid`, BM25 ranks too.
    """


@runs(rerank_step.STEP)
def rerank(corpus: Folder, candidates: Folder, reranker: Folder, output: Folder, **settings: Setting) -> StepResult:
    """Re-rank the best passages of a run with a cross-encoder, into `output/run`."""


@runs(select_best_step.STEP)
def select_best(
    corpus: Folder,
    bm25: Folder,
    candidates: Mapping[str, Folder],
    indexes: Mapping[str, Folder],
    output: Folder,
    **settings: Setting,
) -> Winner:
    """Copy the retriever that ranks the dev queries best, alone or with BM25, to `output/retriever`.

    `candidates` maps names to retrievers; the first wins unless another is better. `indexes` maps the same names to
    their indexes. The result has the winner's `index` and `hybrid` for `Searcher.open`.
    """


@runs(evaluate_step.STEP)
def evaluate(
    corpus: Folder,
    runs: Mapping[str, Folder],
    output: Folder,
    *,
    curves: Mapping[str, Folder] | None = None,
    **settings: Setting,
) -> Evaluation:
    """Measure runs on the test queries, test their differences and write `output/evaluation/report.html`.

    `runs` maps system names to runs of `bm25`, `retrieve` or `rerank`, or to TREC run files of other tools, in the
    order of the report. `curves` maps names of trainings to their curves. The result has `figures` (system → measure →
    mean, from 0 to 1) and the page as `report`.

        stillhouse.evaluate(corpus, {"BM25": bm25.run, "dense": run}, "work").figures["dense"]["nDCG@10"]

    Raises `InputError` for a corpus without judged test queries.
    """
