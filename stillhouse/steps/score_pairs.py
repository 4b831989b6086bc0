"""Step `score-pairs`: a teacher's scores of positives and negatives, the soft labels of distillation (SimLM §3.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.errors import InputError
from stillhouse.retrieval.settings import InferenceConfig
from stillhouse.steps.spec import Paths, Port, Report, Step

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from stillhouse.corpus.store import Corpus


@dataclass(frozen=True, kw_only=True)
class Config(InferenceConfig):
    """Which teacher, and how many negatives it scores."""

    kind: str = setting(
        "cross-encoder",
        "cross-encoder = its raw scores (SimLM eq. 5); best = whichever ranks the dev queries' candidates best: the "
        "cross-encoder, BM25, or the weighted sum of these and the retriever, calibrated on the dev queries",
        choices=("cross-encoder", "best"),
    )
    depth: int = setting(200, "score this many of the best negatives of a query, or some of these", minimum=1)
    negatives_scored: int | None = setting(
        None,
        "score this many, those that a training with the same seed draws first; negatives_per_query x epochs of "
        "the training are all that it reads; null = all",
        minimum=1,
        former=0,
    )
    dev_negatives_scored: int | None = setting(
        None,
        "the same for dev queries, of which a training reads negatives_per_query; null = as many as of the others",
        minimum=1,
        former=0,
    )
    seed: int = setting(42, "seed of the order in which negatives are drawn", minimum=0)


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    import numpy as np
    import pandas as pd

    from stillhouse.corpus.store import Corpus
    from stillhouse.retrieval.fine_tuning.fused_teacher import CROSS_ENCODER, Pairs, choose_teacher, unmeasured
    from stillhouse.retrieval.fine_tuning.teacher import Teacher, write_choice
    from stillhouse.retrieval.mining.negatives import Negatives, training_queries
    from stillhouse.retrieval.mining.rotation import first_turn

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
    query_P = np.concatenate([query_of_positive, np.nonzero(scored_QD)[0]])
    texts_Q = queries["text"].to_numpy(dtype=object)
    values = _scores(config, inputs, corpus, texts_Q, query_P, rows_P, context)
    positive_P = np.arange(len(rows_P)) < len(positives)
    pairs = Pairs(query_P, positive_P, list(values), np.stack(list(values.values()), axis=1))
    of_dev = pairs.of((queries["split"] == "dev").to_numpy()[query_P])
    try:
        found = choose_teacher(of_dev)
    except ValueError:
        if config.kind == "best":
            raise InputError(
                "no dev query has both a positive and a negative among the scored candidates, so no teacher can be "
                "chosen; mine negatives of the dev queries too, or set `kind: cross-encoder`"
            ) from None
        found = unmeasured(CROSS_ENCODER)
    if config.kind == "cross-encoder":
        found = found.as_it_is(CROSS_ENCODER)
    scores = found.scores(pairs)
    negative_scores_QD = np.full(rows_QD.shape, np.nan, dtype=np.float32)
    negative_scores_QD[scored_QD] = scores[len(positives) :]
    ids = queries["query_id"].to_numpy()[query_of_positive]
    positive_scores = pd.DataFrame({"query_id": ids, "row": positives, "score": scores[: len(positives)]})
    Teacher(negatives.queries, negative_scores_QD, positive_scores).write(outputs["teacher"])
    write_choice(outputs["teacher"], found)
    return Report(
        f"{len(scores)} pairs of {len(queries)} queries scored; {found}",
        metrics={f"dev_rr10_{kind}": value for kind, value in found.reciprocal_ranks.items()},
        facts={"pairs": len(scores), "teacher": found.chosen, "weights": dict(found.weights), "ahead": found.ahead},
    )


def _scores(
    config: Config,
    inputs: Paths,
    corpus: Corpus,
    texts_Q: NDArray[np.object_],
    query_P: NDArray[np.int64],
    rows_P: NDArray[np.int32],
    context: Context,
) -> dict[str, NDArray[np.float32]]:
    """The scores of all pairs by every kind whose inputs were given, each float32 [P]."""
    from stillhouse.corpus.store import open_passage_texts
    from stillhouse.retrieval.fine_tuning import fused_teacher
    from stillhouse.retrieval.index.vector_index import VectorIndex
    from stillhouse.retrieval.mining.mine_negatives import DenseRanking
    from stillhouse.retrieval.models.cross_encoder import CrossEncoder, score_pairs
    from stillhouse.retrieval.models.encoder import BiEncoder
    from stillhouse.retrieval.search.bm25 import BM25
    from stillhouse.retrieval.search.dense import check_index, query_vectors

    found: dict[str, NDArray[np.float32]] = {}
    if "reranker" in inputs:
        model, texts = CrossEncoder.load(inputs["reranker"]), open_passage_texts(corpus, context.work, rows_P)
        found[fused_teacher.CROSS_ENCODER] = score_pairs(
            model, texts_Q, texts, query_P, rows_P, context, "scoring", config
        )
    elif config.kind == "cross-encoder":
        raise InputError("kind: cross-encoder needs --reranker; name it, or set `kind: best`")
    if ("retriever" in inputs) != ("index" in inputs):
        raise InputError("--retriever and --index belong together: give both, or neither")
    if "retriever" in inputs:
        encoder, index = BiEncoder.load(inputs["retriever"]), VectorIndex(inputs["index"])
        check_index(index, corpus)
        vectors_QD = query_vectors(encoder, index, list(texts_Q), context, config)
        found[fused_teacher.RETRIEVER] = DenseRanking(vectors_QD, index).score(query_P, rows_P)
    if "bm25" in inputs:
        found[fused_teacher.BM25] = BM25.load(inputs["bm25"]).score_pairs(list(texts_Q), query_P, rows_P)
    if not found.keys() - {fused_teacher.RETRIEVER}:
        raise InputError("a teacher needs more than its student's scores: give --reranker, --bm25 or both")
    return found


STEP = Step(
    "score-pairs",
    "scores positives and negatives with the teacher, for distillation",
    Config,
    inputs=(
        Port("corpus", "the corpus folder"),
        Port("negatives", "hard negatives", agrees_on=("corpus",)),
        Port("reranker", "the cross-encoder", kind="model", optional=True),
        Port("retriever", "the student so far, which has a part in the fused teacher", kind="model", optional=True),
        Port("index", "the student's index of the corpus", optional=True),
        Port("bm25", "the BM25 index, which has a part in the fused teacher", optional=True),
    ),
    outputs=(Port("teacher", "the scores"),),
    run=run,
)
