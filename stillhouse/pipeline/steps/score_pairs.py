"""Step `score-pairs`: a teacher's scores of positives and negatives, as soft labels for distillation (SimLM §3.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stillhouse.core.context import Context, rank
from stillhouse.core.errors import InputError
from stillhouse.pipeline.steps.spec import CORPUS, Paths, Port, Report, Step
from stillhouse.training.settings import ScoredPairsConfig as Config

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from stillhouse.corpus.store import Corpus
    from stillhouse.training.scored_pairs import ScoredPairs


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    import numpy as np
    import pandas as pd

    from stillhouse.corpus.store import Corpus
    from stillhouse.training.negatives import Negatives
    from stillhouse.training.scored_pairs import ScoredPairs
    from stillhouse.training.teacher import CROSS_ENCODER, Pairs, Teacher, choose_teacher, unmeasured, write_choice

    _refuse_inputs(config, inputs)
    corpus, negatives = Corpus.open(inputs["corpus"]), Negatives.read(inputs["negatives"])
    scored = ScoredPairs.of(config, corpus, negatives)
    queries, positives = scored.queries, scored.positives
    dev_P = (queries["split"] == "dev").to_numpy()[scored.query_P]
    # Only a sum teaches with the scores of the others; a cross-encoder alone is compared with them on dev queries.
    values = _scores(config, inputs, corpus, scored, dev_P | (config.kind == "best"), context)
    if values is None:
        return Report("scored its share")
    positive_P = np.arange(len(scored)) < positives
    pairs = Pairs(scored.query_P, positive_P, list(values), np.stack(list(values.values()), axis=1))
    try:
        found = choose_teacher(pairs.of(dev_P))
    except ValueError:
        if config.kind == "best":
            raise InputError(
                "no dev query has both a positive and a negative among the scored candidates, so no teacher can be "
                "chosen; mine negatives of the dev queries too, or set `kind: cross-encoder`"
            ) from None
        found = unmeasured(CROSS_ENCODER)
    if config.kind == "cross-encoder":
        found = found.one_kind(CROSS_ENCODER)
    scores = found.scores(pairs)
    negative_scores_QD = np.full(scored.scored_QD.shape, np.nan, dtype=np.float32)
    negative_scores_QD[scored.scored_QD] = scores[positives:]
    ids = queries["query_id"].to_numpy()[scored.query_P[:positives]]
    positive_scores = pd.DataFrame({"query_id": ids, "row": scored.rows_P[:positives], "score": scores[:positives]})
    Teacher(negatives.queries, negative_scores_QD, positive_scores).write(outputs["teacher"])
    write_choice(outputs["teacher"], found)
    verdict = {"ahead": float(found.ahead)} if found.student in found.reciprocal_ranks else {}
    return Report(
        f"{len(scores)} pairs of {len(queries)} queries scored; {found}",
        metrics={f"dev_rr10_{kind}": value for kind, value in found.reciprocal_ranks.items()} | verdict,
        facts={"pairs": len(scores), "teacher": found.chosen, "weights": dict(found.weights), "ahead": found.ahead},
    )


def _refuse_inputs(config: Config, inputs: Paths) -> None:
    if config.kind == "cross-encoder" and "reranker" not in inputs:
        raise InputError("kind: cross-encoder needs the input reranker; name it, or set `kind: best`")
    if ("retriever" in inputs) != ("index" in inputs):
        raise InputError("the inputs retriever and index are needed together: give both, or neither")
    if not inputs.keys() & {"reranker", "bm25", "generator"}:
        raise InputError("the student's scores alone make no teacher: also give the input reranker, bm25 or generator")


def _scores(
    config: Config, inputs: Paths, corpus: Corpus, pairs: ScoredPairs, asked_P: NDArray[np.bool_], context: Context
) -> dict[str, NDArray[np.float32]] | None:
    """The scores of all pairs by every kind whose inputs were given, each float32 [P]; None in every process of
    torchrun but the first.

    The retriever, BM25 and the generator score the pairs `asked_P`; the others get 0 from them.
    """
    from dataclasses import replace

    import numpy as np

    from stillhouse.corpus.store import open_passage_texts
    from stillhouse.models.encoder import BiEncoder
    from stillhouse.models.pair_scores import score_pairs
    from stillhouse.models.text_generator import TextGenerator
    from stillhouse.search.bm25 import BM25
    from stillhouse.search.searcher import open_index, query_vectors
    from stillhouse.training import teacher as fused_teacher
    from stillhouse.training.mine_negatives import DenseRanking
    from stillhouse.training.scored_pairs import cross_encoder_scores, read_scores

    found: dict[str, NDArray[np.float32]] = {}
    if context.shares is not None:
        found[fused_teacher.CROSS_ENCODER] = read_scores(context.shares, len(pairs))
    elif "reranker" in inputs:
        scores = cross_encoder_scores(inputs["reranker"], pairs, slice(0, len(pairs)), corpus, context, config)
        if scores is not None:
            found[fused_teacher.CROSS_ENCODER] = scores
    if rank() > 0:
        return None
    if not asked_P.any():
        return found
    asked_Q, query_A = np.unique(pairs.query_P[asked_P], return_inverse=True)
    texts, rows_A = list(pairs.texts_Q[asked_Q]), pairs.rows_P[asked_P]
    if "retriever" in inputs:
        encoder, index = BiEncoder.load(inputs["retriever"]), open_index(inputs["index"], corpus)
        vectors_QD = query_vectors(encoder, index, texts, context, config)
        found[fused_teacher.RETRIEVER] = DenseRanking(vectors_QD, index).score(query_A, rows_A)
    if "bm25" in inputs:
        found[fused_teacher.BM25] = BM25.load(inputs["bm25"]).score_pairs(texts, query_A, rows_A)
    if "generator" in inputs:
        own = replace(context, work=context.work / fused_teacher.GENERATOR)  # beside the cross-encoder's scores
        own.work.mkdir(exist_ok=True)
        passages = open_passage_texts(corpus, own.work, rows_A)
        queries, model = np.array(texts, dtype=object), TextGenerator.load(inputs["generator"])
        scores = score_pairs(model, queries, passages, query_A, rows_A, own, "likelihoods", config)
        found[fused_teacher.GENERATOR] = scores
    for kind in found.keys() - {fused_teacher.CROSS_ENCODER}:
        scores_P = np.zeros(len(pairs), dtype=np.float32)
        scores_P[asked_P] = found[kind]
        found[kind] = scores_P
    return found


STEP = Step(
    "score-pairs",
    "scores positives and negatives with the teacher, for distillation",
    Config,
    inputs=(
        CORPUS,
        Port("negatives", "hard negatives", agrees_on=("corpus",)),
        Port("reranker", "the cross-encoder", kind="model", optional=True),
        Port(
            "retriever",
            "the student so far, to compare with and as part of the fused teacher",
            kind="model",
            optional=True,
        ),
        Port("index", "the student's index of the corpus", optional=True),
        Port("bm25", "the BM25 index, as part of the fused teacher", optional=True),
        Port(
            "generator",
            "a language model whose likelihood of the query is part of the fused teacher",
            kind="model",
            optional=True,
        ),
    ),
    outputs=(Port("teacher", "the scores"),),
    run=run,
    parallel=True,
)
