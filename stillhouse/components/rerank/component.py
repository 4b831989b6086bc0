# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from typing import Optional

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def rerank(
    corpus: Input[Dataset],
    candidates: Input[Dataset],
    reranker: Input[Model],
    run: Output[Dataset],
    metrics: Output[Metrics],
    precision: str = "auto",
    batch_tokens: int = 8192,
    depth: int = 200,
    dev_depth: Optional[int] = None,
    system: str = "reranked",
):
    """Re-ranks a run's top passages with the cross-encoder.

    Args:
        corpus: the corpus folder.
        candidates: the run to re-rank.
        reranker: the cross-encoder.
        run: the re-ranked passages.
        metrics: the step's figures.
        precision: auto = bf16 if it is faster on the processor or GPU, else fp32.
        batch_tokens: padded tokens in a batch.
        depth: re-rank this many of the best passages per query (SimLM Table 13).
        dev_depth: the same for dev queries, which only choose settings; null = the same depth.
        system: the name in the run file's last column.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("rerank", locals())
