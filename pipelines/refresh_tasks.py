# No `from __future__ import annotations` here: kfp reads the types of the signatures as they stand.
"""The components of the refresh that are no steps: its plan, and the promotion of what was made."""

from typing import NamedTuple

from kfp import dsl
from kfp.dsl import Dataset, Input, Markdown, Metrics, Model, Output

from components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def plan_refresh(
    corpus: Input[Dataset],
    validation: Input[Dataset],
    released_corpus: Output[Dataset],
    retriever: Output[Model],
    encoder: Output[Model],
    reranker: Output[Model],
    generator: Output[Model],
    summary: Output[Markdown],
    releases: str,
    branch: str,
    recipe: str,
    fine_tune_above: float,
    pretrain_above: float,
    measure: str,
    alpha: float,
    most_loss: float,
    again: bool,
) -> NamedTuple("Planned", [("rung", str), ("champion", str)]):  # type: ignore[valid-type]
    """Compares the corpus with that of the release in use, and says how far the refresh goes.

    Args:
        corpus: the corpus as it is now.
        validation: its verdict.
        released_corpus: the corpus of the release in use.
        retriever: its retriever.
        encoder: its pre-trained encoder.
        reranker: its re-ranker.
        generator: the model that replaces tokens in pre-training.
        summary: the rung, and why.
        releases: the git repository of the releases.
        branch: its branch; empty = its own.
        recipe: the recipe, as YAML.
        fine_tune_above: the share of texts above which the retriever is trained.
        pretrain_above: the share above which the encoder is pre-trained again.
        measure: the measure that decides.
        alpha: refused when worse with a p-value of at most this.
        most_loss: refused when the mean falls by more than this.
        again: try a corpus again whose challenger was refused.
    """
    from stillhouse.surfaces.refresh_component import run_plan

    return run_plan(locals())


@dsl.component(base_image=image(), install_kfp_package=False)
def release_refresh(
    corpus: Input[Dataset],
    validation: Input[Dataset],
    challenger_index: Input[Dataset],
    challenger_run: Input[Dataset],
    summary: Output[Markdown],
    metrics: Output[Metrics],
    releases: str,
    branch: str,
    recipe: str,
    champion: str,
    fine_tune_above: float,
    pretrain_above: float,
    measure: str,
    alpha: float,
    most_loss: float,
    champion_index: Input[Dataset] = None,
    champion_run: Input[Dataset] = None,
    lexical_run: Input[Dataset] = None,
    lexical_negatives: Input[Dataset] = None,
    negatives: Input[Dataset] = None,
    teacher: Input[Dataset] = None,
    challenger: Input[Model] = None,
    challenger_curves: Input[Dataset] = None,
    tokens: Input[Dataset] = None,
    importance: Input[Dataset] = None,
    encoder: Input[Model] = None,
    encoder_curves: Input[Dataset] = None,
):
    """Releases the challenger, unless it is worse than the release in use: pushes data, commits, tags.

    Args:
        corpus: the corpus as it is now.
        validation: its verdict.
        challenger_index: the challenger's index.
        challenger_run: its run.
        summary: how it ended, and why.
        metrics: 1 for a release, 0 for a refusal.
        releases: the git repository of the releases.
        branch: its branch; empty = its own.
        recipe: the recipe, as YAML.
        champion: the version that the challenger was made beside.
        fine_tune_above: the share of texts above which the retriever is trained.
        pretrain_above: the share above which the encoder is pre-trained again.
        measure: the measure that decides.
        alpha: refused when worse with a p-value of at most this.
        most_loss: refused when the mean falls by more than this.
        champion_index: the index that the released retriever makes of the corpus.
        champion_run: its run.
        lexical_run: the run of BM25.
        lexical_negatives: its negatives.
        negatives: negatives of the released retriever.
        teacher: the re-ranker's scores of them.
        challenger: the retriever that was trained.
        challenger_curves: its losses.
        tokens: the token arrays.
        importance: the token importance.
        encoder: the encoder that was pre-trained again.
        encoder_curves: its losses.
    """
    from stillhouse.surfaces.refresh_component import run_release

    run_release(locals())
