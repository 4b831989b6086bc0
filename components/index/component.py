# Rendered by `python -m components.render`; change the step's declaration, not this file.
from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def index(
    corpus: Input[Dataset],
    retriever: Input[Model],
    index: Output[Dataset],
    metrics: Output[Metrics],
    validation: Input[Dataset] = None,
    precision: str = "auto",
    batch_tokens: int = 8192,
):
    """Encodes every passage and builds a faiss index.

    Args:
        corpus: the corpus folder.
        retriever: the bi-encoder.
        index: the faiss index and its ids.
        metrics: the step's figures.
        validation: the verdict that lets the run go on.
        precision: auto = bf16 where the processor or GPU computes in it, else fp32.
        batch_tokens: padded tokens computed at once.
    """
    from stillhouse.surfaces.component import run_component

    run_component("index", locals())
