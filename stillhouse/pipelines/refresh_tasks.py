# No `from __future__ import annotations` here: kfp reads the signatures' types directly.
"""The components of the refresh that are not steps: the check of the parameters, the plan, and the promotion."""

from kfp import dsl
from kfp.dsl import Dataset, Input, Markdown, Metrics, Model, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def check_refresh(
    asked: Output[Dataset],
    releases: str,
    branch: str,
    repo: str,
    source: str,
    revision: str,
    fine_tune_above: float,
    pretrain_above: float,
    query_only_gain: float,
    measure: str,
    alpha: float,
    most_loss: float,
    least_queries: int,
    bootstrap_samples: int,
    randomisation_samples: int,
    again: bool,
):
    """Refuses parameters of `refresh` that are out of range, and repositories that cannot be read.

    Args:
        asked: the parameters, for later tasks.
    """
    from stillhouse.kubernetes.pods.refresh import run_check

    run_check(locals())


@dsl.component(base_image=image(), install_kfp_package=False)
def plan_refresh(
    corpus: Input[Dataset],
    validation: Input[Dataset],
    asked: Input[Dataset],
    retriever: Output[Model],
    encoder: Output[Model],
    reranker: Output[Model],
    generator: Output[Model],
    refreshed: Output[Dataset],
    summary: Output[Markdown],
    recipe: str,
) -> str:
    """Compares the corpus with the released one, and returns the rung: how far the refresh goes.

    Args:
        corpus: the current corpus.
        validation: its verdict; a corpus that does not pass ends the run here.
        asked: the parameters of the run.
        retriever: the released retriever; like the next three, only if the rung starts from it.
        encoder: its pre-trained encoder.
        reranker: its re-ranker.
        generator: the model that replaces tokens in pre-training.
        refreshed: the rung, the release and the reason.
        summary: the same in readable form.
    """
    from stillhouse.kubernetes.pods.refresh import run_plan

    return run_plan(locals())


@dsl.component(base_image=image(), install_kfp_package=False)
def release_refresh(
    planned: Input[Dataset],
    corpus: Input[Dataset],
    validation: Input[Dataset],
    challenger_run: Input[Dataset],
    refreshed: Output[Dataset],
    summary: Output[Markdown],
    metrics: Output[Metrics],
    challenger_index: Input[Dataset] = None,
    champion_index: Input[Dataset] = None,
    champion_best_retriever: Input[Model] = None,
    champion_best_index: Input[Dataset] = None,
    champion_best_hybrid: Input[Dataset] = None,
    champion_run: Input[Dataset] = None,
    bm25_run: Input[Dataset] = None,
    bm25_negatives: Input[Dataset] = None,
    bm25_bm25: Input[Dataset] = None,
    negatives: Input[Dataset] = None,
    teacher: Input[Dataset] = None,
    challenger: Input[Model] = None,
    challenger_curves: Input[Dataset] = None,
    query_tower: Input[Model] = None,
    query_tower_index: Input[Dataset] = None,
    query_tower_curves: Input[Dataset] = None,
    challenger_best_retriever: Input[Model] = None,
    challenger_best_index: Input[Dataset] = None,
    challenger_best_hybrid: Input[Dataset] = None,
    tokens: Input[Dataset] = None,
    importance: Input[Dataset] = None,
    encoder: Input[Model] = None,
    encoder_curves: Input[Dataset] = None,
):
    """Releases the challenger, unless it is worse than the release in use: pushes data, commits, tags.

    Args:
        planned: the plan: the rung, the release that the challenger competes with, and the parameters.
        corpus: the current corpus.
        validation: its verdict.
        challenger_run: the challenger's run.
        refreshed: how far the refresh went and how it ended.
        summary: the same in readable form.
        metrics: 1 for a release, 0 for a refusal.
        challenger_index: the challenger's index.
        champion_index: the released retriever's index of the corpus.
        champion_best_retriever: the same retriever, with its combination with BM25.
        champion_best_index: its index.
        champion_best_hybrid: its combination with BM25.
        champion_run: its run.
        bm25_run: the run of BM25.
        bm25_negatives: its negatives.
        bm25_bm25: its index.
        negatives: negatives of the released retriever.
        teacher: the teacher's scores for them.
        challenger: the trained retriever.
        challenger_curves: its losses.
        query_tower: the released retriever with a query tower that was trained alone.
        query_tower_index: its index.
        query_tower_curves: its losses.
        challenger_best_retriever: the better of the two retrievers.
        challenger_best_index: its index.
        challenger_best_hybrid: its combination with BM25.
        tokens: the token arrays.
        importance: the token importance.
        encoder: the encoder that was pre-trained again.
        encoder_curves: its losses.
    """
    from stillhouse.kubernetes.pods.refresh import run_release

    run_release(locals())
