# Rendered by `python -m components.render`; change the step's declaration, not this file.
from kfp import dsl
from kfp.dsl import ClassificationMetrics, Dataset, Input, Metrics, Model, Output

from components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def score(
    corpus: Input[Dataset],
    negatives: Input[Dataset],
    reranker: Input[Model],
    teacher: Output[Dataset],
    metrics: Output[Metrics],
    roc: Output[ClassificationMetrics],
    precision: str = "auto",
    batch_tokens: int = 8192,
    depth: int = 200,
    negatives_scored: int = 0,
    dev_negatives_scored: int = 0,
    seed: int = 42,
):
    """Scores positives and negatives with the cross-encoder, for distillation.

    Args:
        corpus: the corpus folder.
        negatives: hard negatives.
        reranker: the cross-encoder.
        teacher: the scores.
        metrics: the step's figures.
        roc: how the scores tell positives from negatives.
        precision: auto = bf16 where the processor or GPU is faster in it, else fp32.
        batch_tokens: padded tokens computed at once.
        depth: score the best so many negatives of a query, or some of these.
        negatives_scored: score so many of them, those that a training with the same seed draws first;
            negatives_per_query x epochs of the training are all that it reads; 0 = all.
        dev_negatives_scored: the same for dev queries, of which a training reads negatives_per_query; 0 = as many
            as of the others.
        seed: seed of the order in which negatives are drawn.
    """
    from stillhouse.surfaces.component import run_component

    run_component("score", locals())
