"""Step `retrieve`: searches the index for every dev and test query."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.retrieval.settings import InferenceConfig
from stillhouse.steps.spec import Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config(InferenceConfig):
    """How deep a run is, and its name."""

    depth: int = setting(200, "passages in the run of a query", minimum=1)
    system: str = setting("dense", "the name in the run file's last column")


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    from stillhouse.corpus.store import Corpus
    from stillhouse.retrieval.dense import check_index, retrieve
    from stillhouse.retrieval.encoder import BiEncoder
    from stillhouse.retrieval.runs import write_run
    from stillhouse.retrieval.vector_index import VectorIndex

    corpus = Corpus.open(inputs["corpus"])
    passage_ids = list(corpus.passage_row)
    encoder, index = BiEncoder.load(inputs["retriever"]), VectorIndex(inputs["index"])
    check_index(index, corpus)
    searched = 0
    for split in ("dev", "test"):
        queries = corpus.queries_of(split)
        rows_QK, scores_QK = retrieve(encoder, index, list(queries["text"]), config.depth, context, config)
        path = outputs["run"] / f"{split}.trec"
        write_run(path, list(queries["query_id"]), passage_ids, rows_QK, scores_QK, config.system)
        searched += len(queries)
    return Report(f"{searched} queries, the best {config.depth} passages each")


STEP = Step(
    "retrieve",
    "searches the index for every dev and test query",
    Config,
    inputs=(
        Port("corpus", "the corpus folder"),
        Port("retriever", "the bi-encoder", kind="model"),
        Port("index", "its index of the corpus"),
    ),
    outputs=(Port("run", "the ranked passages"),),
    run=run,
)
