"""Step `index`: encodes every passage and builds the faiss index."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.context import Context
from stillhouse.retrieval.settings import InferenceConfig
from stillhouse.steps.spec import Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config(InferenceConfig):
    """How passages are encoded."""


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    from stillhouse.corpus.store import Corpus, passage_texts
    from stillhouse.retrieval.encoder import BiEncoder, encode
    from stillhouse.retrieval.vector_index import write_index

    corpus = Corpus.open(inputs["corpus"])
    encoder = BiEncoder.load(inputs["retriever"])
    texts = encoder.passages(passage_texts(corpus))
    vectors_ND = encode(encoder, texts, context, "encoding", config)
    write_index(outputs["index"], vectors_ND, corpus.passages["passage_id"])
    facts = {"passages": len(vectors_ND), "width": int(vectors_ND.shape[1])}
    return Report(f"{len(vectors_ND)} passages as vectors of width {vectors_ND.shape[1]}", facts=facts)


STEP = Step(
    "index",
    "encodes every passage and builds a faiss index",
    Config,
    inputs=(
        Port("corpus", "the corpus folder"),
        Port("retriever", "the bi-encoder", kind="model"),
        Port("validation", "the verdict that lets the run go on", optional=True),
    ),
    outputs=(Port("index", "the faiss index and its ids"),),
    run=run,
)
