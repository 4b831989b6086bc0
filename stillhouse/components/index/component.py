# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from typing import Optional

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def index(
    corpus: Input[Dataset],
    retriever: Input[Model],
    index: Output[Dataset],
    metrics: Output[Metrics],
    vectors: Input[Dataset] = None,
    validation: Input[Dataset] = None,
    precision: str = "auto",
    batch_tokens: int = 8192,
    cache_gib: float = 10.0,
    kind: str = "flat",
    truncate_dim: Optional[int] = None,
    hnsw_m: int = 32,
    hnsw_ef_construction: int = 128,
    hnsw_ef_search: int = 256,
    ivf_nlist: Optional[int] = None,
    ivf_nprobe: int = 32,
    pq_m: Optional[int] = None,
    rescore_multiplier: int = 32,
):
    """Encodes every passage and builds a faiss index.

    Args:
        corpus: the corpus folder.
        retriever: the bi-encoder.
        index: the faiss index and its ids.
        metrics: the step's figures.
        vectors: vectors from `encode`: one folder, or a folder with one for each shard.
        validation: the verdict that lets the run continue.
        precision: auto = bf16 where the processor or GPU is faster in it, else fp32.
        batch_tokens: padded tokens computed at once.
        cache_gib: passages' vectors are kept in the work area for later runs of the same model, those of all models
            together in at most this many GiB; 0 = none are kept or used.
        kind: flat = exact search; hnsw = a graph, fast and large; ivfpq = clusters of vectors in few bytes; ivfsq8
            = clusters of vectors in one byte a dimension; sq8 = one byte a dimension, all compared; binary_rescored
            = one bit a dimension, all compared, of which the best are compared again in one byte a dimension.
        truncate_dim: keep this many of the first dimensions (for a Matryoshka model); null = all.
        hnsw_m: hnsw alone: links of a passage in the graph.
        hnsw_ef_construction: hnsw alone: candidates that are looked at when a passage is linked.
        hnsw_ef_search: hnsw alone: candidates that a query keeps, at least as many as are asked for.
        ivf_nlist: ivfpq and ivfsq8 alone: clusters; null = the square root of the passages times four, of 39
            passages each at least.
        ivf_nprobe: ivfpq and ivfsq8 alone: clusters that a query looks into.
        pq_m: ivfpq alone: bytes of a vector, a divisor of its width; null = one for four dimensions.
        rescore_multiplier: binary_rescored alone: passages that are compared again, for each one that is asked for.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("index", locals())
