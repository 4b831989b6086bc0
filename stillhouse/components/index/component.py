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
        precision: auto = bf16 if it is faster on the processor or GPU, else fp32.
        batch_tokens: padded tokens in a batch.
        cache_gib: cache passage vectors in the work area for later runs of the same model, in at most this many GiB
            for all models together; 0 = no cache.
        kind: flat = exact search; hnsw = a graph, fast and large; ivfpq = clusters of vectors in few bytes; ivfsq8
            = clusters of vectors at one byte per dimension; sq8 = one byte per dimension, all compared;
            binary_rescored = one bit per dimension, all compared; the best are rescored at one byte per dimension.
        truncate_dim: keep this many of the first dimensions (for a Matryoshka model); null = all.
        hnsw_m: hnsw only: links of a passage in the graph.
        hnsw_ef_construction: hnsw only: candidates examined when a passage is linked.
        hnsw_ef_search: hnsw only: candidates that a query keeps, at least as many as requested.
        ivf_nlist: ivfpq and ivfsq8 only: clusters; null = four times the square root of the passages, with at least
            39 of them each.
        ivf_nprobe: ivfpq and ivfsq8 only: clusters that a query searches.
        pq_m: ivfpq only: bytes per vector, a divisor of its width; null = one per four dimensions.
        rescore_multiplier: binary_rescored only: passages rescored for each one requested.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("index", locals())
