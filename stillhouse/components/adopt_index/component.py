# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def adopt_index(
    corpus: Input[Dataset],
    retriever: Input[Model],
    old_index: Input[Dataset],
    old_retriever: Input[Model],
    index: Output[Dataset],
    metrics: Output[Metrics],
    own_index: Input[Dataset] = None,
    precision: str = "auto",
    batch_tokens: int = 8192,
    cache_gib: float = 10.0,
    least_ratio: float = 0.99,
    share: float = 0.0,
):
    """Reuses an older retriever's index for a newer one, if dev queries still rank well.

    Args:
        corpus: the corpus folder.
        retriever: the newer bi-encoder.
        old_index: the older bi-encoder's index of the corpus.
        old_retriever: the older bi-encoder.
        index: the old index, or a mixed one, for the newer bi-encoder.
        metrics: the step's figures.
        own_index: the newer bi-encoder's own index, to compare with.
        precision: auto = bf16 if it is faster on the processor or GPU, else fp32.
        batch_tokens: padded tokens in a batch.
        cache_gib: cache passage vectors in the work area for later runs of the same model, in at most this many GiB
            for all models together; 0 = no cache.
        least_ratio: the lowest dev nDCG@10 of the new retriever in the old index, as a share of that in its own
            (--own-index) or else of the old retriever's.
        share: the share of the passages to encode with the new retriever, in corpus order; the others keep their
            vectors. Vectors that were encoded before are taken from the cache.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("adopt-index", locals())
