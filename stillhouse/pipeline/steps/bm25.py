"""Step `bm25`: makes BM25's index and run, and hard negatives for the first retriever."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.pipeline.steps.spec import CORPUS, GATE, Paths, Port, Report, Step
from stillhouse.training.settings import NegativesConfig


@dataclass(frozen=True, kw_only=True)
class Config(NegativesConfig):
    """BM25's parameters and depths."""

    k1: float = setting(1.5, "BM25's term frequency saturation", minimum=0)
    b: float = setting(0.75, "BM25's length normalisation", minimum=0, maximum=1)
    language: str | None = setting(
        None, "ISO 639-1 code of the corpus's language, for stemming and stop words; null = detected from its passages"
    )
    depth: int = setting(200, "passages per query in the run, more if qrels name documents", minimum=1)
    negatives_depth: int = setting(200, "hard negatives per query (SimLM Table 13; K1 of CDMAE §3.4)", minimum=1)

    def __post_init__(self) -> None:
        if self.language is not None and not re.fullmatch("[a-z]{2,3}", self.language):
            raise InputError(f"language is {self.language!r}; give an ISO 639-1 code, such as en, de or ja")


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    from stillhouse.core.arrays import evenly_spaced
    from stillhouse.corpus.store import Corpus, read_passage_texts
    from stillhouse.evaluation.runs import write_run
    from stillhouse.search.bm25 import BM25, PASSAGES_SAMPLED, language_of
    from stillhouse.training.mine_negatives import MiningQueries, ranked
    from stillhouse.training.negatives import Negatives, describe

    corpus = Corpus.open(inputs["corpus"])
    language = config.language
    if language is None:
        rows = evenly_spaced(corpus.passage_count, PASSAGES_SAMPLED)
        language = language_of(corpus.passages_at(rows, "text")["text"].tolist())
    bm25 = BM25.of(read_passage_texts(corpus), config.k1, config.b, language)
    bm25.save(outputs["bm25"])
    for split in ("dev", "test"):
        queries = corpus.queries_of(split)
        rows_QK, scores_QK = bm25.search(list(queries["text"]), corpus.run_depth(config.depth))
        path = outputs["run"] / f"{split}.trec"
        write_run(path, list(queries["query_id"]), corpus.passage_ids, rows_QK, scores_QK, "bm25")
    asked = MiningQueries(corpus, config.negatives_among, config.without_answers)
    texts_Q = asked.queries["text"].to_numpy(dtype=object)
    rows_QD, _ = ranked(
        asked, lambda queries_B, depth: bm25.search(list(texts_Q[queries_B]), depth), config.negatives_depth
    )
    negatives = Negatives(asked.queries[["query_id", "split"]], asked.judged_first(rows_QD))
    negatives.write(outputs["negatives"])
    return Report(
        f"BM25 over {corpus.passage_count} passages ({bm25.terms}), {describe(negatives)}",
        facts={"queries_without_negatives": int((negatives.counts() == 0).sum()), "language": language},
    )


STEP = Step(
    "bm25",
    "retrieves with BM25: an index, a run and negatives for the first retriever",
    Config,
    inputs=(CORPUS, GATE),
    outputs=(Port("run", "BM25's run"), Port("negatives", "BM25's hard negatives"), Port("bm25", "BM25's index")),
    run=run,
)
