# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def hybrid(
    corpus: Input[Dataset],
    retriever: Input[Model],
    index: Input[Dataset],
    bm25: Input[Dataset],
    hybrid: Output[Dataset],
    metrics: Output[Metrics],
    precision: str = "auto",
    batch_tokens: int = 8192,
    method: str = "auto",
    depth: int = 100,
):
    """Fits the weights that combine BM25 and a retriever, on the dev queries.

    Args:
        corpus: the corpus folder.
        retriever: the bi-encoder.
        index: its index of the corpus.
        bm25: the BM25 index from `bm25`.
        hybrid: the weights and the BM25 index.
        metrics: the step's figures.
        precision: auto = bf16 where the processor or GPU is faster in it, else fp32.
        batch_tokens: padded tokens computed at once.
        method: weights = the weighted sum of BM25's score and the vectors' product that makes the dev queries'
            right answers likeliest; convex = a fixed weight of scores that are scaled to lie between 0 and 1; ranks
            = reciprocal rank fusion; auto = weights, or convex where the corpus has no labelled dev queries.
        depth: candidates that each of the two brings.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("hybrid", locals())
