# Rendered by `python -m components.render`; change the step's declaration, not this file.
from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def mine(
    corpus: Input[Dataset],
    retriever: Input[Model],
    index: Input[Dataset],
    negatives: Output[Dataset],
    metrics: Output[Metrics],
    precision: str = "auto",
    batch_tokens: int = 8192,
    negatives_depth: int = 200,
    negatives_among: str = "corpus",
):
    """Takes a retriever's best wrong passages as hard negatives.

    Args:
        corpus: the corpus folder.
        retriever: the bi-encoder.
        index: its index of the corpus.
        negatives: hard negatives.
        metrics: the step's figures.
        precision: auto = bf16 where the processor or GPU computes in it, else fp32.
        batch_tokens: padded tokens computed at once.
        negatives_depth: hard negatives of a query (001 Table 13; K2 and K3 of 003 §3.4).
        negatives_among: which passages may be negatives: corpus = all, as in 001; answers = those that answer
            another query of the same split, for a corpus whose splits divide its passages: others would be learned
            by heart as wrong.
    """
    from stillhouse.surfaces.component import run_component

    run_component("mine", locals())
