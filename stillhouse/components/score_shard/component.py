# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from typing import Optional

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def score_shard(
    corpus: Input[Dataset],
    negatives: Input[Dataset],
    reranker: Input[Model],
    scores: Output[Dataset],
    metrics: Output[Metrics],
    precision: str = "auto",
    batch_tokens: int = 8192,
    kind: str = "cross-encoder",
    depth: int = 200,
    negatives_scored: Optional[int] = None,
    dev_negatives_scored: Optional[int] = None,
    seed: int = 42,
    shard: int = 1,
    shards: int = 1,
):
    """Scores one shard of the pairs with the cross-encoder, to split the work among machines.

    Args:
        corpus: the corpus folder.
        negatives: hard negatives.
        reranker: the cross-encoder.
        scores: the scores of the shard's pairs.
        metrics: the step's figures.
        precision: auto = bf16 if it is faster on the processor or GPU, else fp32.
        batch_tokens: padded tokens in a batch.
        kind: cross-encoder = its raw scores (SimLM eq. 5); best = whichever ranks the dev queries' candidates best:
            the cross-encoder, BM25, or a weighted sum of two or all of these and the retriever, calibrated on the
            dev queries.
        depth: score negatives from this many of the best of a query.
        negatives_scored: score this many, those that a training with the same seed draws first; it reads at most
            negatives_per_query x epochs of them; null = all.
        dev_negatives_scored: the same for dev queries, where a training reads negatives_per_query; null = all that
            were mined, whatever the depth, to compare the teacher with its student.
        seed: seed of the order of drawn negatives.
        shard: the number of this shard, from 1.
        shards: how many parts the corpus is divided into.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("score-shard", locals())
