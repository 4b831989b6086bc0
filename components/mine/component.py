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
    """
    from stillhouse.surfaces.component import run_component

    run_component("mine", locals())
