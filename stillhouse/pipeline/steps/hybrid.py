"""Step `hybrid`: fits the combined ranking of BM25 and a retriever on the dev queries."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.models.settings import InferenceConfig
from stillhouse.pipeline.steps.spec import BM25_INDEX, SEARCHED, Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config(InferenceConfig):
    """How to combine BM25 and the retriever."""

    method: str = setting(
        "auto",
        "weights = the weighted sum of BM25's score and the inner product that makes the relevant passages of dev "
        "queries most likely; spread = such a sum without labels, with a weight from the spread of the index's inner "
        "products; convex = a fixed weighting of scores scaled to 0 to 1 per query; "
        "auto = weights, or, if the corpus has fewer than 30 labelled dev queries, spread with a larger weight of BM25 "
        "for a retriever that does not read the language well",
        choices=("auto", "weights", "spread", "convex"),
    )
    depth: int = setting(100, "candidates from each of BM25 and the retriever", minimum=1)


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    from stillhouse.core.errors import InputError
    from stillhouse.corpus.store import Corpus
    from stillhouse.evaluation.relevance import JudgedQueries
    from stillhouse.models.encoder import BiEncoder
    from stillhouse.models.token_states import state_width
    from stillhouse.search.bm25 import BM25
    from stillhouse.search.hybrid import (
        TOKENS,
        HybridIndex,
        can_fit,
        measure_rankings,
        read_fusion,
        unfitted,
        write_hybrid,
    )
    from stillhouse.search.late_interaction import write_tokens
    from stillhouse.search.reading import lexical_factor
    from stillhouse.search.searcher import open_index, query_vectors, searches_on_gpu

    corpus = Corpus.open(inputs["corpus"])
    index, bm25 = open_index(inputs["index"], corpus), BM25.load(inputs["bm25"])
    if "weights" in inputs:
        fusion = read_fusion(inputs["weights"])
        if fusion.late:
            retriever = BiEncoder.load(inputs["retriever"])
            if not state_width(retriever):
                raise InputError("late interaction needs one width in both towers; leave out --weights to fit new ones")
            write_tokens(outputs["hybrid"] / TOKENS, retriever, corpus, context, config)
        write_hybrid(outputs["hybrid"], fusion, bm25)
        return Report(f"as given: {fusion}")
    judged = JudgedQueries(corpus)
    if config.method == "weights" and not len(judged):
        raise InputError(
            f"{inputs['corpus']} has no judged dev queries to fit weights on; use `method: spread`, or ingest with a "
            "dev_fraction above 0"
        )
    hybrid, factor, encoder = HybridIndex(bm25, index), 1.0, BiEncoder.load(inputs["retriever"])
    if config.method == "auto" and not can_fit(judged):
        factor = lexical_factor(encoder, inputs["retriever"], index, bm25, corpus, context, config)
    if not len(judged):
        fusion = unfitted(config.method, config.depth, index, factor=factor)
        write_hybrid(outputs["hybrid"], fusion, bm25)
        return Report(f"no dev queries: {fusion}")
    vectors_QD = query_vectors(encoder, index, judged.texts, context, config)
    gpu = searches_on_gpu(index, config.depth, context)
    measured = measure_rankings(hybrid, judged, vectors_QD, config.depth, config.method, gpu, factor)
    write_hybrid(outputs["hybrid"], measured.fusion, bm25)
    metrics = {f"dev_rr10_{name}": float(values.mean()) for name, values in measured.reciprocal_ranks.items()}
    shown = ", ".join(f"{name.removeprefix('dev_rr10_')} {value:.3f}" for name, value in metrics.items())
    return Report(f"{measured.fusion}; RR@10 of {len(judged)} dev queries: {shown}", metrics=metrics)


STEP = Step(
    "hybrid",
    "fits the weights that combine BM25 and a retriever, on the dev queries",
    Config,
    inputs=(
        *SEARCHED,
        BM25_INDEX,
        Port("weights", "another hybrid whose weights to use instead of fitting them", kind="model", optional=True),
    ),
    outputs=(Port("hybrid", "the weights and the BM25 index"),),
    run=run,
    version=5,
)
