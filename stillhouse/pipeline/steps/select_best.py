"""Step `select-best`: chooses the best retriever on the dev queries, and whether BM25 and late interaction join."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.models.settings import InferenceConfig
from stillhouse.pipeline.steps.spec import BM25_INDEX, CORPUS, Paths, Port, Report, Step, named

if TYPE_CHECKING:
    from stillhouse.corpus.store import Corpus
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
        "on made dev queries a later retriever competes only if RR@10 of random spans of passages, as searches for "
        "them, rises by at least this over the first; null = always",
        minimum=0,
    )
    depth: int = setting(100, "candidates from BM25 and from the retriever", minimum=1)


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    import numpy as np

    from stillhouse.corpus.store import Corpus
    from stillhouse.evaluation.relevance import JudgedQueries
    from stillhouse.evaluation.samples import Samples
    from stillhouse.evaluation.significance import bootstrap_intervals
    from stillhouse.models.encoder import BiEncoder
    from stillhouse.search.bm25 import BM25
    from stillhouse.search.contest import Contest, compares_unfitted
    from stillhouse.search.hybrid import FEWEST_TO_FIT, TOKENS, Fusion, HybridIndex, unfitted
    from stillhouse.search.late_interaction import write_tokens
    from stillhouse.search.searcher import open_index
    from stillhouse.search.winner import METRICS, Contender, describe_winner

    retrievers, indexes = named(inputs, "candidates"), named(inputs, "indexes")
    refuse_unpaired(inputs, retrievers, indexes)
    corpus, bm25 = Corpus.open(inputs["corpus"]), BM25.load(inputs["bm25"])
    judged, tokens = JudgedQueries(corpus), outputs["hybrid"] / TOKENS
    hybrids = {name: HybridIndex(bm25, open_index(indexes[name], corpus)) for name in retrievers}
    rules = config.fusion, config.depth, config.metric_for_best_model, config.standard_errors
    contest = Contest(judged, retrievers, hybrids, corpus, *rules, context, config)
    if not len(judged):
        first, unmeasured = next(iter(retrievers)), np.empty(0)
        fusion = Fusion(depth=config.depth)
        if config.fusion != "never":
            encoder = BiEncoder.load(retrievers[first])
            compared = config.fusion == "auto" and compares_unfitted(encoder)
            fusion = unfitted("auto", config.depth, hybrids[first].index, compared, contest.factor(first))
            if fusion.late:
                write_tokens(tokens, encoder, corpus, context, config)
        winner = Contender(first, fusion, unmeasured, unmeasured)
        return Report(
            "the corpus has no judged dev queries for model selection, so the first candidate is the winner: "
            f"{winner.name} ({fusion})",
            facts=_written(winner, retrievers, indexes, bm25, outputs) | {"chosen_by": NOTHING},
        )
    gains, guess = dict[str, float](), JudgedQueries(corpus, fewest=FEWEST_TO_FIT)
    if not guess.labelled:
        competing = retrievers
        if (least := config.span_gain) is not None:
            gains = span_gains(retrievers, hybrids, corpus, context, config)
            competing = {name: of for name, of in retrievers.items() if gains.get(name, math.inf) >= least}
        contest = replace(contest, judged=guess, retrievers=competing, factors=contest.factors)
    winner, before = contest.winner(tokens), dict[str, Any]()
    if judged.labelled and not guess.labelled:
        # Twenty questions alone would choose worse than none do (benchmarks/no_labels.md).
        before = {"winner_on_made": winner.name, "made_queries": len(guess)}
        contest = replace(contest, judged=judged, retrievers=retrievers)
        winner = contest.winner(tokens, winner)
    contenders = contest.contenders
    if not winner.fusion.late:
        shutil.rmtree(tokens, ignore_errors=True)
    figures = {
        f"dev_{metric}": {name: float(contender.values(metric).mean()) for name, contender in contenders.items()}
        for metric in METRICS
    }
    ranks_QC = np.stack([contender.reciprocal_ranks for contender in contenders.values()], axis=1)
    bounds_CB = np.stack(bootstrap_intervals(ranks_QC, Samples.bootstrap_samples, Samples.seed), axis=1)
    out = "".join(
        f"; {name} does not compete: RR@10 of spans rises by {gain:.3f}"
        for name, gain in gains.items()
        if name not in contest.retrievers
    )
    if before:
        out += f"; it must lead {before['winner_on_made']}, the winner on {before['made_queries']:,} made queries"
    return Report(
        describe_winner(winner, contenders, config.metric_for_best_model) + out,
        metrics={f"{figure}/{name}": value for figure, of in figures.items() for name, value in of.items()},
        facts=_written(winner, retrievers, indexes, bm25, outputs)
        | {"chosen_by": config.metric_for_best_model, "queries": len(contest.judged), **figures}
        | {"dev_rr10_interval": dict(zip(contenders, bounds_CB.tolist())), "synthetic": not judged.labelled}
        | ({"span_gains": gains} if gains else {})
        | before,
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
    version=10,
)
