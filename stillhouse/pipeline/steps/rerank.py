"""Step `rerank`: re-orders a run's best passages with the cross-encoder; the others follow in their old order."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.models.settings import InferenceConfig
from stillhouse.pipeline.steps.spec import CORPUS, RERANKER, Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config(InferenceConfig):
    """How many passages to re-rank."""

    depth: int = setting(200, "re-rank this many of the best passages per query (SimLM Table 13)", minimum=1)
    dev_depth: int | None = setting(
        None, "the same for dev queries, which only serve to choose settings; null = the same depth", minimum=1
    )
    system: str = setting("reranked", "the name in the run file's last column")


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    import numpy as np

    from stillhouse.corpus.store import Corpus, open_passage_texts
    from stillhouse.evaluation.runs import ranked_rows, reordered, write_run
    from stillhouse.models.cross_encoder import CrossEncoder
    from stillhouse.models.pair_scores import score_pairs

    corpus = Corpus.open(inputs["corpus"])
    model = CrossEncoder.load(inputs["reranker"])
    scored = 0
    for split in ("dev", "test"):
        ids, rows_QK = ranked_rows(inputs["candidates"] / f"{split}.trec", corpus.passage_ids)
        questions = corpus.queries_of(split).set_index("query_id")["text"].reindex(ids).to_numpy(dtype=object)
        deep = (config.dev_depth if split == "dev" else None) or config.depth
        query_P, rank_P = np.nonzero(rows_QK[:, :deep] >= 0)
        rows_P = rows_QK[query_P, rank_P]
        texts, what = open_passage_texts(corpus, context.work, rows_P), f"re-ranking {split}"
        scores_P = score_pairs(model, questions, texts, query_P, rows_P, context, what, config)
        scores_QK = reordered(rows_QK, query_P, rank_P, scores_P)
        write_run(outputs["run"] / f"{split}.trec", ids, corpus.passage_ids, rows_QK, scores_QK, config.system)
        scored += len(query_P)
    return Report(f"{scored} pairs re-ranked, the best {config.depth} passages a query", facts={"pairs": scored})


STEP = Step(
    "rerank",
    "re-ranks a run's top passages with the cross-encoder",
    Config,
    inputs=(CORPUS, Port("candidates", "the run to re-rank"), RERANKER),
    outputs=(Port("run", "the re-ranked passages"),),
    run=run,
)
