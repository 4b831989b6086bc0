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
    weights: Input[Model] = None,
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
        weights: another hybrid, whose weights to take instead of fitting.
        precision: auto = bf16 if it is faster on the processor or GPU, else fp32.
        batch_tokens: padded tokens in a batch.
        method: weights = the weighted sum of BM25's score and the inner product that makes the relevant passages of
            dev queries most likely; spread = such a sum without labels, with a weight from the spread of the
            index's inner products; convex = a fixed weighting of scores scaled to 0 to 1 per query; ranks =
            reciprocal rank fusion; auto = weights, or spread if the corpus has fewer than 30 labelled dev queries.
        depth: candidates from each of the two.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("hybrid", locals())
