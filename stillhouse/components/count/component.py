# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def count(
    tokens: Input[Dataset],
    counts: Output[Dataset],
    metrics: Output[Metrics],
    window: int = 4,
    unit: str = "pieces",
    memory_mib: int = 1024,
    shard: int = 1,
    shards: int = 1,
):
    """Counts n-grams in one shard of the passages, to run importance on many machines.

    Args:
        tokens: the token arrays.
        counts: n-gram counts.
        metrics: the step's figures.
        window: longest n-gram to count: L of CDMAE eq. 8.
        unit: unit of an n-gram: word pieces, as the model reads them, or whole words (each piece scores as its
            word).
        memory_mib: MiB of memory for counting; the rest goes to disk.
        shard: the number of this shard, from 1.
        shards: how many parts the corpus is divided into.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("count", locals())
