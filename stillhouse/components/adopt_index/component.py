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
    least_ratio: float = 0.99,
):
    """Reuses an older retriever's index for a newer one, if dev queries still rank well.

    Args:
        corpus: the corpus folder.
        retriever: the newer bi-encoder.
        old_index: the older bi-encoder's index of the corpus.
        old_retriever: the older bi-encoder.
        index: the old index, for the newer bi-encoder.
        metrics: the step's figures.
        own_index: the newer bi-encoder's own index, to compare with.
        least_ratio: the lowest dev nDCG@10 of the new retriever in the old index, as a share of that in its own
            (--own-index) or else of the old retriever's.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("adopt-index", locals())
