"""Step `retrieve`: searches the index for every dev and test query."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.models.settings import InferenceConfig
from stillhouse.pipeline.steps.spec import SEARCHED, Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config(InferenceConfig):
    """How deep a run is, and its name."""

    depth: int = setting(200, "passages per query in the run, more if qrels name documents", minimum=1)
    system: str = setting("dense", "the name in the run file's last column")


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    from stillhouse.core.artifacts import read_manifest
    from stillhouse.corpus.store import Corpus
    from stillhouse.evaluation.runs import write_run
    from stillhouse.models.encoder import BiEncoder
    from stillhouse.models.token_states import TokenReader
    from stillhouse.search.hybrid import read_hybrid
    from stillhouse.search.searcher import open_index, retrieve
    from stillhouse.search.winner import choice_facts

    corpus = Corpus.open(inputs["corpus"])
    encoder, index = BiEncoder.load(inputs["retriever"]), open_index(inputs["index"], corpus)
    reader = TokenReader(encoder, context, config)
    hybrid = read_hybrid(inputs["hybrid"], index, reader) if "hybrid" in inputs else None
    searched, depth = 0, corpus.run_depth(config.depth)
    for split in ("dev", "test"):
        queries = corpus.queries_of(split)
        rows_QK, scores_QK = retrieve(encoder, index, list(queries["text"]), depth, context, config, hybrid)
        path = outputs["run"] / f"{split}.trec"
        write_run(path, list(queries["query_id"]), corpus.passage_ids, rows_QK, scores_QK, config.system)
        searched += len(queries)
    facts: dict[str, object] = {"fusion": str(hybrid.fusion)} if hybrid else {}
    summary = "; ".join([f"{searched} queries, the best {depth} passages each", *map(str, facts.values())])
    if "hybrid" in inputs and (choice := choice_facts(read_manifest(inputs["hybrid"], verify=False).facts)):
        facts["choice"] = choice
    return Report(summary, facts=facts)


STEP = Step(
    "retrieve",
    "searches the index for every dev and test query",
    Config,
    inputs=(*SEARCHED, Port("hybrid", "the weights for hybrid search with BM25", optional=True)),
    outputs=(Port("run", "the ranked passages"),),
    run=run,
)
