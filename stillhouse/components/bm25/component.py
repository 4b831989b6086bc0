# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from typing import Optional

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def bm25(
    corpus: Input[Dataset],
    run: Output[Dataset],
    negatives: Output[Dataset],
    bm25: Output[Dataset],
    metrics: Output[Metrics],
    validation: Input[Dataset] = None,
    negatives_among: str = "corpus",
    without_answers: bool = False,
    k1: float = 1.5,
    b: float = 0.75,
    language: Optional[str] = None,
    depth: int = 200,
    negatives_depth: int = 200,
    range_min: int = 0,
):
    """Retrieves with BM25: an index, a run and negatives for the first retriever.

    Args:
        corpus: the corpus folder.
        run: BM25's run.
        negatives: BM25's hard negatives.
        bm25: BM25's index.
        metrics: the step's figures.
        validation: the verdict that lets the run continue.
        negatives_among: which passages may be negatives: corpus = all, as in SimLM; answers = only those that
            answer another query of the same split, for a corpus whose splits divide its passages: those of the
            other splits would be memorized as wrong; train_answers = the same, but all passages for dev queries,
            which choose models.
        without_answers: leave out passages that hold an answer to the query, by the rules of `Answer@k` (SimLM
            Appendix B).
        k1: BM25's term frequency saturation.
        b: BM25's length normalisation.
        language: ISO 639-1 code of the corpus's language, for stemming and stop words; null = detected from its
            passages.
        depth: passages per query in the run.
        negatives_depth: hard negatives per query (SimLM Table 13; K1 of CDMAE §3.4).
        range_min: skip this many top-ranked wrong passages, which may be relevant after all.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("bm25", locals())
