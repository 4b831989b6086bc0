"""Step `select-best`: chooses the best retriever on the dev queries, and whether BM25 and late interaction join."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.models.settings import InferenceConfig
from stillhouse.pipeline.steps.spec import BM25_INDEX, CORPUS, Paths, Port, Report, Step, named

if TYPE_CHECKING:
    from stillhouse.corpus.store import Corpus
    from stillhouse.models.encoder import BiEncoder
    from stillhouse.search.bm25 import BM25
    from stillhouse.search.hybrid import HybridIndex
    from stillhouse.search.winner import Contender

NOTHING = "nothing"
"""The metric of the winner if the corpus has no judged dev queries."""


@dataclass(frozen=True, kw_only=True)
class Config(InferenceConfig):
    """When a later system replaces an earlier one."""

    standard_errors: float = setting(
        0.0,
        "a later system replaces an earlier one if its mean on the dev queries leads by more than this many "
        "standard errors of the paired difference; 0 = the highest mean",
        minimum=0,
    )
    metric_for_best_model: str = setting(
        "log_likelihood",
        "the selection metric: log_likelihood = how likely the scores make the relevant passages, more reliable on "
        "few dev queries; rr10 = RR@10",
        choices=("log_likelihood", "rr10"),
    )
    fusion: str = setting(
        "auto",
        "auto = each retriever competes alone and with BM25, and the best with BM25 and late interaction, which "
        "compares token by token and reads the corpus once more; bm25 = without late interaction; never = alone",
        choices=("auto", "bm25", "never"),
    )
    span_gain: float | None = setting(
        None,
        "without labelled dev queries: a later retriever competes only if RR@10 of random spans of passages, as "
        "searches for them, rises by at least this over the first; null = always",
        minimum=0,
    )
    depth: int = setting(100, "candidates from BM25 and from the retriever", minimum=1)


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    import numpy as np
    from numpy.typing import NDArray

    from stillhouse.corpus.store import Corpus
    from stillhouse.evaluation.relevance import JudgedQueries
    from stillhouse.evaluation.samples import Samples
    from stillhouse.evaluation.significance import bootstrap_intervals
    from stillhouse.models.encoder import BiEncoder
    from stillhouse.models.token_states import TokenReader, state_width
    from stillhouse.search.bm25 import BM25
    from stillhouse.search.hybrid import (
        TOKENS,
        Fusion,
        HybridIndex,
        MeasuredRankings,
        can_fit,
        fused_scores,
        measure_rankings,
        unfitted,
    )
    from stillhouse.search.late_interaction import LateInteraction, write_tokens
    from stillhouse.search.reading import lexical_factor
    from stillhouse.search.searcher import open_index, query_vectors, searches_on_gpu
    from stillhouse.search.winner import (
        METRICS,
        Contender,
        choose_winner,
        common_candidates,
        describe_winner,
        log_likelihoods,
    )

    retrievers, indexes = named(inputs, "candidates"), named(inputs, "indexes")
    refuse_unpaired(inputs, retrievers, indexes)
    corpus, bm25 = Corpus.open(inputs["corpus"]), BM25.load(inputs["bm25"])
    judged, alone = JudgedQueries(corpus), Fusion(depth=config.depth)
    tokens = outputs["hybrid"] / TOKENS
    hybrids = {name: HybridIndex(bm25, open_index(indexes[name], corpus)) for name in retrievers}

    def factor(name: str, encoder: BiEncoder) -> float:
        if config.fusion == "never" or can_fit(judged):
            return 1.0
        return lexical_factor(encoder, retrievers[name], hybrids[name].index, bm25, corpus, context, config)

    if not len(judged):
        first, unmeasured = next(iter(retrievers)), np.empty(0)
        fusion = alone
        if config.fusion != "never":
            encoder = BiEncoder.load(retrievers[first])
            compared = config.fusion == "auto" and compares_unfitted(encoder)
            fusion = unfitted("auto", config.depth, hybrids[first].index, compared, factor(first, encoder))
            if fusion.late:
                write_tokens(tokens, encoder, corpus, context, config)
        winner = Contender(first, fusion, unmeasured, unmeasured)
        return Report(
            "the corpus has no judged dev queries for model selection, so the first candidate is the winner: "
            f"{winner.name} ({fusion})",
            facts=_written(winner, retrievers, indexes, bm25, outputs) | {"chosen_by": NOTHING},
        )
    gains, least = dict[str, float](), config.span_gain
    if least is not None and not judged.labelled:
        gains = span_gains(retrievers, hybrids, corpus, context, config)
        retrievers = {name: of for name, of in retrievers.items() if gains.get(name, math.inf) >= least}
    rankings, vectors = dict[str, MeasuredRankings](), dict[str, NDArray[np.float32]]()
    factors = dict[str, float]()
    for name, folder in retrievers.items():
        encoder, index = BiEncoder.load(folder), hybrids[name].index
        vectors[name] = query_vectors(encoder, index, judged.texts, context, config)
        gpu = searches_on_gpu(index, config.depth, context)
        factors[name] = factor(name, encoder)
        rankings[name] = measure_rankings(
            hybrids[name], judged, vectors[name], config.depth, gpu=gpu, factor=factors[name]
        )
    rows_QU = common_candidates([found.rows_QK for found in rankings.values()], judged.answers_QP)
    right_QU = judged.right(rows_QU)
    bm25_QU = bm25.scores_of(judged.texts, rows_QU)

    def likelihoods(scores_QU: NDArray[np.float32]) -> NDArray[np.float64]:
        return log_likelihoods(scores_QU, judged.judged_best(rows_QU, scores_QU), right_QU)

    contenders: dict[str, Contender] = {}
    for name, found in rankings.items():
        dense_QU = hybrids[name].products(vectors[name], rows_QU)
        systems = {"dense": (alone, dense_QU)}
        if config.fusion != "never":
            both_QUF = np.stack([bm25_QU, dense_QU], axis=2)
            systems["hybrid"] = found.fusion, fused_scores(found.fusion, rows_QU, both_QUF)
        for ranked, (fusion, scores_QU) in systems.items():
            contender = Contender(name, fusion, found.reciprocal_ranks[ranked], likelihoods(scores_QU))
            contenders[contender.name] = contender
    winner = choose_winner(contenders.values(), config.metric_for_best_model, config.standard_errors)
    encoder = BiEncoder.load(retrievers[winner.retriever])
    if config.fusion == "auto" and (state_width(encoder) if judged.labelled else compares_unfitted(encoder)):
        name, index = winner.retriever, hybrids[winner.retriever].index
        write_tokens(tokens, encoder, corpus, context, config)
        late = LateInteraction(tokens, TokenReader(encoder, context, config))
        both = HybridIndex(bm25, index, late)
        gpu = searches_on_gpu(index, config.depth, context)
        found = measure_rankings(both, judged, vectors[name], config.depth, gpu=gpu, factor=factors[name])
        if found.fusion.late:
            three = [bm25_QU, both.products(vectors[name], rows_QU), late.scores_of(judged.texts, rows_QU)]
            likely_Q = likelihoods(fused_scores(found.fusion, rows_QU, np.stack(three, axis=2)))
            contender = Contender(name, found.fusion, found.reciprocal_ranks["hybrid"], likely_Q)
            contenders[contender.name] = contender
            # Neither made nor a few labelled questions show what late interaction adds to a fusion with BM25
            # (benchmarks/no_labels.md).
            joins = not judged.labelled or (
                winner.fusion is not alone and compares_unfitted(encoder) and not can_fit(judged)
            )
            pair = [contender] if joins else [winner, contender]
            winner = choose_winner(pair, config.metric_for_best_model, config.standard_errors)
        if not winner.fusion.late:
            del late, both  # a network file system keeps mapped files
            shutil.rmtree(tokens)
    figures = {
        f"dev_{metric}": {name: float(contender.values(metric).mean()) for name, contender in contenders.items()}
        for metric in METRICS
    }
    ranks_QC = np.stack([contender.reciprocal_ranks for contender in contenders.values()], axis=1)
    bounds_CB = np.stack(bootstrap_intervals(ranks_QC, Samples.bootstrap_samples, Samples.seed), axis=1)
    out = "".join(
        f"; {name} does not compete: RR@10 of spans rises by {gain:.3f}"
        for name, gain in gains.items()
        if name not in retrievers
    )
    return Report(
        describe_winner(winner, contenders, config.metric_for_best_model) + out,
        metrics={f"{figure}/{name}": value for figure, of in figures.items() for name, value in of.items()},
        facts=_written(winner, retrievers, indexes, bm25, outputs)
        | {"chosen_by": config.metric_for_best_model, "queries": len(judged), **figures}
        | {"dev_rr10_interval": dict(zip(contenders, bounds_CB.tolist())), "synthetic": not judged.labelled}
        | ({"span_gains": gains} if gains else {}),
    )


def span_gains(
    retrievers: Paths, hybrids: Mapping[str, HybridIndex], corpus: Corpus, context: Context, config: Config
) -> dict[str, float]:
    """By how much RR@10 of spans rises from the first retriever to each later one; empty without spans."""
    from stillhouse.models.encoder import BiEncoder
    from stillhouse.search.spans import draw_spans, ranks_of_spans

    spans = draw_spans(corpus)
    if not spans[0]:
        return {}
    first, *later = (
        float(ranks_of_spans(spans, BiEncoder.load(folder), hybrids[name].index, corpus, context, config).mean())
        for name, folder in retrievers.items()
    )
    return {name: value - first for name, value in zip([*retrievers][1:], later)}


def compares_unfitted(encoder: BiEncoder) -> bool:
    """Whether late interaction joins with fixed weights, which were found on models that pool by the mean."""
    from stillhouse.models.token_states import state_width

    return encoder.settings.pooling == "mean" and state_width(encoder) > 0


def _written(winner: Contender, retrievers: Paths, indexes: Paths, bm25: BM25, outputs: Paths) -> dict[str, Any]:
    """Writes the winner and returns its facts."""
    from stillhouse.core.artifacts import copy_content
    from stillhouse.search.hybrid import write_hybrid

    for port, folders in (("retriever", retrievers), ("index", indexes)):
        copy_content(folders[winner.retriever], outputs[port])
    write_hybrid(outputs["hybrid"], winner.fusion, bm25)
    return {"winner": winner.name, "retriever": winner.retriever, "fusion": str(winner.fusion)}


def refuse_unpaired(inputs: Paths, retrievers: Paths, indexes: Paths) -> None:
    """Refuses a retriever without an index, an index without a retriever, and an index that another model made."""
    from stillhouse.core.errors import InputError
    from stillhouse.pipeline.steps.execute import refuse_other_model

    for name in sorted(retrievers.keys() ^ indexes.keys()):
        missing = "indexes" if name in retrievers else "candidates"
        raise InputError(f"select-best: {name} lacks a folder; give --{missing} {name}=FOLDER too")
    for name in retrievers:
        refuse_other_model(STEP, inputs, f"indexes/{name}", f"candidates/{name}")


STEP = Step(
    "select-best",
    "chooses the best retriever on the dev queries, alone, with BM25 or with late interaction too",
    Config,
    inputs=(
        CORPUS,
        BM25_INDEX,
        Port("candidates", "a bi-encoder; the others must beat the first", kind="model", many=True),
        Port("indexes", "its index of the corpus, under the same name", many=True),
    ),
    outputs=(
        Port("retriever", "the best bi-encoder", kind="model"),
        Port("index", "its index of the corpus", beside=("retriever",)),
        Port("hybrid", "how to combine it with BM25 and late interaction, if at all", beside=("retriever", "index")),
    ),
    run=run,
    version=9,
)
