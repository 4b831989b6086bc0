"""Step `score`: the cross-encoder's scores of positives and negatives, the soft labels of distillation (001 §3.2)."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.retrieval.settings import InferenceConfig
from stillhouse.steps.spec import Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config(InferenceConfig):
    """How many negatives are scored."""

    depth: int = setting(200, "score the best so many negatives of a query, or some of these", minimum=1)
    negatives_scored: int = setting(
        0,
        "score so many of them, those that a training with the same seed draws first; negatives_per_query x epochs of "
        "the training are all that it reads; 0 = all",
        minimum=0,
    )
    dev_negatives_scored: int = setting(
        0,
        "the same for dev queries, of which a training reads negatives_per_query; 0 = as many as of the others",
        minimum=0,
    )
    seed: int = setting(42, "seed of the order in which negatives are drawn", minimum=0)


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    import numpy as np
    import pandas as pd

    from stillhouse.corpus.store import Corpus, open_passage_texts
    from stillhouse.retrieval.cross_encoder import CrossEncoder, score_pairs
    from stillhouse.retrieval.negatives import Negatives, training_queries
    from stillhouse.retrieval.rotation import first_turn
    from stillhouse.retrieval.teacher import Teacher

    corpus, negatives = Corpus.open(inputs["corpus"]), Negatives.read(inputs["negatives"])
    queries = training_queries(corpus)
    assert list(queries["query_id"]) == list(negatives.queries["query_id"]), "lineage ties negatives to the corpus"
    rows_QD = np.asarray(negatives.rows_QD)
    scored_QD = (rows_QD >= 0) & (np.arange(rows_QD.shape[1]) < config.depth)
    for split, count in (
        ("train", config.negatives_scored),
        ("dev", config.dev_negatives_scored or config.negatives_scored),
    ):
        if count:
            of_split = np.flatnonzero(negatives.queries["split"] == split)
            scored_QD[of_split] = first_turn(scored_QD[of_split], of_split, count, config.seed)
    offsets, positives = corpus.positives(queries["query_id"])
    query_of_positive = np.repeat(np.arange(len(queries)), np.diff(offsets))
    rows_P = np.concatenate([positives, rows_QD[scored_QD]])
    scores = score_pairs(
        CrossEncoder.load(inputs["reranker"]),
        queries["text"].to_numpy(dtype=object),
        open_passage_texts(corpus, context.work, rows_P),
        np.concatenate([query_of_positive, np.nonzero(scored_QD)[0]]),
        rows_P,
        context,
        "scoring",
        config,
    )
    negative_scores_QD = np.full(rows_QD.shape, np.nan, dtype=np.float32)
    negative_scores_QD[scored_QD] = scores[len(positives) :]
    ids = queries["query_id"].to_numpy()[query_of_positive]
    positive_scores = pd.DataFrame({"query_id": ids, "row": positives, "score": scores[: len(positives)]})
    Teacher(negatives.queries, negative_scores_QD, positive_scores).write(outputs["teacher"])
    return Report(f"{len(scores)} pairs of {len(queries)} queries scored", facts={"pairs": len(scores)})


STEP = Step(
    "score",
    "scores positives and negatives with the cross-encoder, for distillation",
    Config,
    inputs=(
        Port("corpus", "the corpus folder"),
        Port("negatives", "hard negatives"),
        Port("reranker", "the cross-encoder", kind="model"),
    ),
    outputs=(Port("teacher", "the scores"),),
    run=run,
)
