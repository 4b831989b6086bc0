# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def encode(
    corpus: Input[Dataset],
    retriever: Input[Model],
    vectors: Output[Dataset],
    metrics: Output[Metrics],
    validation: Input[Dataset] = None,
    precision: str = "auto",
    batch_tokens: int = 8192,
    cache_gib: float = 10.0,
    shard: int = 1,
    shards: int = 1,
):
    """Encodes one shard of the passages, to build an index on many machines.

    Args:
        corpus: the corpus folder.
        retriever: the bi-encoder.
        vectors: the passages' vectors.
        metrics: the step's figures.
        validation: the verdict that lets the run continue.
        precision: auto = bf16 if it is faster on the processor or GPU, else fp32.
        batch_tokens: padded tokens in a batch.
        cache_gib: cache passage vectors in the work area for later runs of the same model, in at most this many GiB
            for all models together; 0 = no cache.
        shard: the number of this shard, from 1.
        shards: how many parts the corpus is divided into.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("encode", locals())
