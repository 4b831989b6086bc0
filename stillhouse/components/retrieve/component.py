# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def retrieve(
    corpus: Input[Dataset],
    retriever: Input[Model],
    index: Input[Dataset],
    run: Output[Dataset],
    metrics: Output[Metrics],
    hybrid: Input[Dataset] = None,
    precision: str = "auto",
    batch_tokens: int = 8192,
    depth: int = 200,
    latency_queries: int = 0,
    system: str = "dense",
):
    """Searches the index for every dev and test query.

    Args:
        corpus: the corpus folder.
        retriever: the bi-encoder.
        index: its index of the corpus.
        run: the ranked passages.
        metrics: the step's figures.
        hybrid: the weights for hybrid search with BM25.
        precision: auto = bf16 if it is faster on the processor or GPU, else fp32.
        batch_tokens: padded tokens in a batch.
        depth: passages per query in the run.
        latency_queries: time this many test queries one by one; 0 = none, since times differ between runs and
            machines.
        system: the name in the run file's last column.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("retrieve", locals())
