# Rendered by `python -m components.render`; change the step's declaration, not this file.
from kfp import dsl
from kfp.dsl import HTML, Dataset, Input, Markdown, Metrics, Output

from components.image import image


@dsl.component(base_image=image(), install_kfp_package=False)
def evaluate(
    corpus: Input[Dataset],
    evaluation: Output[Dataset],
    metrics: Output[Metrics],
    html: Output[HTML],
    summary: Output[Markdown],
    bm25: Input[Dataset] = None,
    zero_shot: Input[Dataset] = None,
    retriever_1_unpretrained: Input[Dataset] = None,
    retriever_1: Input[Dataset] = None,
    retriever_2: Input[Dataset] = None,
    reranked: Input[Dataset] = None,
    distilled: Input[Dataset] = None,
    lm_head_curves: Input[Dataset] = None,
    pretraining_curves: Input[Dataset] = None,
    retriever_1_unpretrained_curves: Input[Dataset] = None,
    retriever_1_curves: Input[Dataset] = None,
    retriever_2_curves: Input[Dataset] = None,
    reranker_curves: Input[Dataset] = None,
    distilled_curves: Input[Dataset] = None,
    measures: str = "RR@10 nDCG@10 R@50 R@100",
    bootstrap_samples: int = 2000,
    randomisation_samples: int = 10000,
    examples: int = 8,
    compared: str = "",
    title: str = "Stillhouse evaluation",
    seed: int = 42,
):
    """Measures every system, tests the differences and writes one report.

    Args:
        corpus: the corpus folder.
        evaluation: metrics, significance and the report.
        metrics: the step's figures.
        html: the report, as a page.
        summary: the figures of every system, as a table.
        bm25: run of BM25, the lexical baseline.
        zero_shot: run of the starting model as it is.
        retriever_1_unpretrained: run of retriever 1 (BM25 negatives) without pre-training.
        retriever_1: run of retriever 1: pre-trained, BM25 negatives.
        retriever_2: run of retriever 2: pre-trained, negatives mined by retriever 1.
        reranked: run of retriever 2's top passages re-ordered by the cross-encoder.
        distilled: run of distilled retriever: mined negatives and the cross-encoder's scores.
        lm_head_curves: loss curves: language-model head.
        pretraining_curves: loss curves: pre-training.
        retriever_1_unpretrained_curves: loss curves: retriever 1 without pre-training.
        retriever_1_curves: loss curves: retriever 1.
        retriever_2_curves: loss curves: retriever 2.
        reranker_curves: loss curves: re-ranker.
        distilled_curves: loss curves: distilled retriever.
        measures: measures by the names of ir_measures, spaces between; Answer@k asks for an answer in the text of a
            passage.
        bootstrap_samples: bootstrap samples behind every interval.
        randomisation_samples: random sign flips behind every randomisation test.
        examples: how many example queries the report shows.
        compared: the system and the baseline that are shown query by query, as `distilled bm25`; empty = those of
            the headline.
        title: title of the report.
        seed: seed of every random choice.
    """
    from stillhouse.surfaces.component import run_component

    run_component("evaluate", locals())
