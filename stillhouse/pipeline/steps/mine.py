"""Step `mine`: mines a retriever's top-ranked wrong passages as hard negatives for the next training (SimLM §3.2,
retriever 2)."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.models.settings import InferenceConfig
from stillhouse.pipeline.steps.spec import NEGATIVES, SEARCHED, Paths, Port, Report, Step
from stillhouse.training.settings import NegativesConfig


@dataclass(frozen=True, kw_only=True)
class Config(NegativesConfig, InferenceConfig):
    """How deep to mine, what to leave out, and what to mix in."""

    negatives_depth: int = setting(200, "hard negatives per query (SimLM Table 13; K2 and K3 of CDMAE §3.4)", minimum=1)
    margin: str = setting(
        "none",
        "leave out passages that the retriever scores above a limit, as probably relevant; relative = above "
        "s - relative_margin * |s|, where s is the lowest score of a query's positives",
        choices=("none", "relative"),
    )
    relative_margin: float = setting(
        0.05, "how far below the positive's score a negative must be, as a share of it", minimum=0, maximum=1
    )
    margin_on: str = setting(
        "train+dev",
        "which queries the margin applies to: train leaves dev rankings complete, because choosing a step "
        "and measuring a teacher need the wrong passages that rank above the relevant one, and a margin removes them",
        choices=("train+dev", "train"),
    )
    range_max: int | None = setting(
        None,
        "passages to retrieve per query, at least negatives_depth; null = as many as needed, or twice as many if a "
        "margin or without_answers filters some out",
        minimum=1,
    )
    others_depth: int = setting(0, "mix in this many of the best negatives of `others` for each query", minimum=0)
    random_negatives: int = setting(0, "random passages to mix in per query", minimum=0)
    seed: int = setting(42, "seed of the random passages", minimum=0)

    def __post_init__(self) -> None:
        if self.margin == "none" and self.relative_margin != Config.__dataclass_fields__["relative_margin"].default:
            raise InputError("relative_margin has no effect with margin none; set margin: relative")
        if self.range_max is not None and self.range_max < self.negatives_depth:
            raise InputError(
                f"range_max {self.range_max} cannot give negatives_depth {self.negatives_depth}; raise it, or set "
                "it to null to search as deep as needed"
            )


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    import numpy as np

    from stillhouse.corpus.store import Corpus
    from stillhouse.models.encoder import BiEncoder
    from stillhouse.search.searcher import open_index, query_vectors, searches_on_gpu
    from stillhouse.training import mine_negatives as mining
    from stillhouse.training.negatives import Negatives, describe

    if config.others_depth and "others" not in inputs:
        raise InputError("others_depth mixes in negatives from another source; give their folder as the input others")
    corpus = Corpus.open(inputs["corpus"])
    encoder, index = BiEncoder.load(inputs["retriever"]), open_index(inputs["index"], corpus)
    asked = mining.MiningQueries(corpus, config.negatives_among, config.without_answers)
    texts_Q = asked.queries["text"].to_numpy(dtype=object)
    vectors_QD = query_vectors(encoder, index, list(texts_Q), context, config)
    ranking = mining.DenseRanking(vectors_QD, index, lambda depth: searches_on_gpu(index, depth, context))
    offsets, positives = corpus.positives(asked.queries["query_id"])
    query_of_positive = np.repeat(np.arange(len(asked)), np.diff(offsets))

    limits_Q = None
    if config.margin != "none":
        scores = ranking.score(query_of_positive, positives)
        limits_Q = mining.limits(config.relative_margin, scores, offsets)
        if config.margin_on == "train":
            limits_Q[(asked.queries["split"] == "dev").to_numpy()] = np.inf
    accept = [] if limits_Q is None else [mining.below(ranking.score, limits_Q)]
    own_QD, above = mining.ranked(asked, ranking.search, config.negatives_depth, limits_Q, config.range_max)
    sources = [own_QD]
    if config.others_depth:
        others = Negatives.read(inputs["others"])
        others_QD = np.full((len(asked), others.rows_QD.shape[1]), -1, dtype=np.int32)
        others_QD[asked.queries["query_id"].isin(others.texts(corpus)["query_id"])] = others.rows_QD
        rows_QD, dropped = mining.best_of(asked, others_QD, config.others_depth, accept)
        sources.append(rows_QD)
        above += dropped
    drawn_QD = mining.random_passages(asked, mining.interleaved(sources), config.random_negatives, config.seed)
    random_QD, dropped = mining.best_of(asked, drawn_QD, config.random_negatives, accept)
    above += dropped
    rows_QD = mining.interleaved([*sources, random_QD])

    rows_QD = asked.judged_first(rows_QD)
    negatives = Negatives(asked.queries[["query_id", "split"]], rows_QD)
    negatives.write(outputs["negatives"])
    said = describe(negatives)
    if limits_Q is not None:
        said += f"; {above} candidates above the margin were left out"
    return Report(
        said, facts={"queries_without_negatives": int((negatives.counts() == 0).sum()), "above_margin": above}
    )


STEP = Step(
    "mine",
    "mines a retriever's top-ranked wrong passages as hard negatives",
    Config,
    inputs=(
        *SEARCHED,
        Port("others", "negatives from another source to mix in, such as BM25's", optional=True, agrees_on=("corpus",)),
    ),
    outputs=(NEGATIVES,),
    run=run,
)
