# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def select_best(
    corpus: Input[Dataset],
    bm25: Input[Dataset],
    candidates: Input[Model],
    indexes: Input[Dataset],
    retriever: Output[Model],
    index: Output[Dataset],
    hybrid: Output[Dataset],
    metrics: Output[Metrics],
    precision: str = "auto",
    batch_tokens: int = 8192,
    standard_errors: float = 0.0,
    metric_for_best_model: str = "log_likelihood",
    fusion: str = "auto",
    depth: int = 100,
):
    """Chooses the best retriever on the dev queries, alone or with BM25.

    Args:
        corpus: the corpus folder.
        bm25: the BM25 index from `bm25`.
        candidates: a folder with one named folder for each: a bi-encoder; the others must beat the first.
        indexes: a folder with one named folder for each: its index of the corpus, under the same name.
        retriever: the best bi-encoder.
        index: its index of the corpus.
        hybrid: whether and how to combine it with BM25.
        metrics: the step's figures.
        precision: auto = bf16 if it is faster on the processor or GPU, else fp32.
        batch_tokens: padded tokens in a batch.
        standard_errors: a later system replaces an earlier one if its mean on the dev queries leads by more than
            this many standard errors of the paired difference; 0 = the highest mean (docs/findings.md).
        metric_for_best_model: what chooses: log_likelihood = how likely the scores make the relevant passages, more
            reliable on few dev queries; rr10 = RR@10.
        fusion: auto = each retriever competes alone and with BM25; never = alone.
        depth: candidates from BM25 and from the retriever.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("select-best", locals())
