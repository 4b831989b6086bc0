# Rendered by `python -m stillhouse.components.render`; change the step's declaration, not this file.
from typing import Optional

from kfp import dsl
from kfp.dsl import Dataset, Input, Metrics, Model, Output

from stillhouse.components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def mine(
    corpus: Input[Dataset],
    retriever: Input[Model],
    index: Input[Dataset],
    negatives: Output[Dataset],
    metrics: Output[Metrics],
    others: Input[Dataset] = None,
    filter_reranker: Input[Model] = None,
    precision: str = "auto",
    batch_tokens: int = 8192,
    negatives_among: str = "corpus",
    without_answers: bool = False,
    negatives_depth: int = 200,
    range_min: int = 0,
    margin: str = "none",
    absolute_margin: float = 0.0,
    relative_margin: float = 0.05,
    margin_on: str = "train+dev",
    reranker_margin: float = 0.0,
    range_max: Optional[int] = None,
    round_trip_depth: Optional[int] = None,
    others_depth: int = 0,
    random_negatives: int = 0,
    seed: int = 42,
):
    """Mines a retriever's top-ranked wrong passages as hard negatives.

    Args:
        corpus: the corpus folder.
        retriever: the bi-encoder.
        index: its index of the corpus.
        negatives: hard negatives.
        metrics: the step's figures.
        others: negatives from another source to mix in, such as BM25's.
        filter_reranker: a cross-encoder that filters out relevant candidates.
        precision: auto = bf16 if it is faster on the processor or GPU, else fp32.
        batch_tokens: padded tokens in a batch.
        negatives_among: which passages may be negatives: corpus = all, as in SimLM; answers = only those that
            answer another query of the same split, for a corpus whose splits divide its passages: those of the
            other splits would be memorized as wrong; train_answers = the same, but all passages for dev queries,
            which choose models.
        without_answers: leave out passages that hold an answer to the query, by the rules of `Answer@k` (SimLM
            Appendix B).
        negatives_depth: hard negatives per query (SimLM Table 13; K2 and K3 of CDMAE §3.4).
        range_min: skip this many top-ranked wrong passages, which may be relevant after all.
        margin: leave out passages that the retriever scores above a limit, as probably relevant; s is the lowest
            score of a query's positives: absolute = s - absolute_margin, relative = s - relative_margin * |s|, both
            = the lower one.
        absolute_margin: how far below the positive's score a negative must be.
        relative_margin: the same, as a share of the positive's score.
        margin_on: which queries the margin applies to: train leaves dev rankings complete, because choosing a step
            and measuring a teacher need the wrong passages that rank above the relevant one, and a margin removes
            them.
        reranker_margin: with a filter_reranker: how far its score of a negative must be below that of the positive.
        range_max: passages to search per query, at least negatives_depth; null = enough, or twice as deep if a
            margin or without_answers leaves some out.
        round_trip_depth: round-trip filtering: leave out train queries that were made from the corpus and whose
            passage is not among the first this many that the retriever finds; null = keep all.
        others_depth: mix in this many of the best negatives of `others` for each query.
        random_negatives: random passages to mix in per query.
        seed: seed of the random passages.
    """
    from stillhouse.kubernetes.pods.component import run_component

    run_component("mine", locals())
