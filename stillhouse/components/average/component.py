# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from typing import Optional

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def average(
    corpus: Input[Dataset],
    start: Input[Model],
    trained: Input[Model],
    negatives: Input[Dataset],
    retriever: Output[Model],
    choices: Output[Dataset],
    metrics: Output[Metrics],
    precision: str = "auto",
    batch_tokens: int = 8192,
    cache_gib: float = 10.0,
    eval_queries: Optional[int] = None,
    eval_depth: int = 50,
    alphas: list = [0.25, 0.5, 0.75, 1.0],
    metric_for_best_model: str = "rr10",
    seed: int = 42,
):
    """Averages the weights of two retrievers in the proportion that ranks dev queries best.

    Args:
        corpus: the corpus folder.
        start: the encoder that training started from.
        trained: the trained retriever.
        negatives: hard negatives; the best are the candidates for dev queries.
        retriever: the averaged retriever.
        choices: how well each share ranks dev queries.
        metrics: the step's figures.
        precision: auto = bf16 if it is faster on the processor or GPU, else fp32.
        batch_tokens: padded tokens in a batch.
        cache_gib: cache passage vectors in the work area for later runs of the same model, in at most this many GiB
            for all models together; 0 = no cache.
        eval_queries: measure on at most this many dev queries, sampled from the seed; null = all.
        eval_depth: best negatives of a dev query that are ranked together with its positives.
        alphas: shares of the trained retriever to try: 1 = it alone, 0 = the start alone.
        metric_for_best_model: the metric of dev queries that chooses: rr10 = RR@10, ndcg10 = nDCG@10; ties go to
            the larger share.
        seed: seed of the sample of dev queries.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("average", locals())
