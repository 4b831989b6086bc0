"""Step `index`: encodes every passage that is not encoded yet, and builds the faiss index."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.core.context import Context, rank
from stillhouse.core.errors import InputError
from stillhouse.pipeline.steps.spec import CORPUS, GATE, RETRIEVER, Paths, Port, Report, Step
from stillhouse.search.settings import EncodingConfig, IndexConfig


@dataclass(frozen=True, kw_only=True)
class Config(IndexConfig, EncodingConfig):
    """How to encode passages, and which index to build."""


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    from stillhouse.core.artifacts import read_manifest
    from stillhouse.corpus.store import Corpus
    from stillhouse.models.encoder import BiEncoder
    from stillhouse.search.corpus_encoding import encode_corpus, model_key
    from stillhouse.search.embeddings import find_shards
    from stillhouse.search.searcher import held_out_vectors
    from stillhouse.search.vector_index import CutVectors, measure, write_index

    corpus = Corpus.open(inputs["corpus"])
    encoder = BiEncoder.load(inputs["retriever"])
    normalize, width = encoder.settings.normalize, config.truncate_dim or encoder.width
    if width > encoder.width:
        raise InputError(
            f"truncate_dim is {width} and the model's vectors have {encoder.width} dimensions; set it lower, or leave "
            "it out"
        )
    shards = []
    given = inputs.get("vectors") or context.shares
    if given:
        made_from = read_manifest(inputs["corpus"], verify=False).digest
        shards = find_shards(given, made_from, model_key(encoder, config, context))
    encoded = encode_corpus(encoder, corpus, context, config, shards)
    if rank() > 0:
        return Report("encoded its share")
    vectors = CutVectors(encoded.embeddings, width, normalize)
    write_index(outputs["index"], config, vectors, corpus.passage_ids, encoder.width)
    metrics = {"index_bytes": float((outputs["index"] / "index.faiss").stat().st_size), "encoded": encoded.computed}
    facts = {"passages": len(vectors), "width": width, "kind": config.kind, "bytes": int(metrics["index_bytes"])}
    summary = f"{len(vectors)} passages as vectors of width {width}, {encoded.computed} of them encoded now"
    if config.kind != "flat":
        measured = measure(outputs["index"], vectors, held_out_vectors(encoder, corpus, vectors, context, config))
        metrics |= measured.recall
        facts |= measured.recall | {"measured_on": measured.queries, "measured_with": measured.source}
        summary += f"; {config.kind}: {measured}"
    return Report(summary, metrics=metrics, facts=facts)


STEP = Step(
    "index",
    "encodes every passage and builds a faiss index",
    Config,
    inputs=(
        CORPUS,
        RETRIEVER,
        Port(
            "vectors",
            "vectors from `encode`: one folder, or a folder with one for each shard",
            kind="model",
            optional=True,
        ),
        GATE,
    ),
    outputs=(Port("index", "the faiss index and its ids"),),
    run=run,
    parallel=True,
    version=3,
)
