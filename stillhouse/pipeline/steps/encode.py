"""Step `encode`: encodes the passages of one shard of a corpus, on one machine; `index` reads all shards."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.core.context import Context, rank
from stillhouse.pipeline.steps.spec import CORPUS, GATE, RETRIEVER, Paths, Port, Report, ShardConfig, Step
from stillhouse.search.settings import EncodingConfig


@dataclass(frozen=True, kw_only=True)
class Config(ShardConfig, EncodingConfig):
    """Which shard of the corpus to encode, and how."""


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    from stillhouse.corpus.store import Corpus
    from stillhouse.models.encoder import BiEncoder
    from stillhouse.search.corpus_encoding import encode_corpus, model_key
    from stillhouse.search.embeddings import shard_rows, write_shard

    corpus = Corpus.open(inputs["corpus"])
    encoder = BiEncoder.load(inputs["retriever"])
    rows = shard_rows(corpus.passage_count, config.shard, config.shards)
    encoded = encode_corpus(encoder, corpus, context, config, rows=rows)
    if rank() > 0:
        return Report("encoded its share")
    first = int(rows[0]) if len(rows) else 0
    write_shard(outputs["vectors"], encoded.embeddings, encoded.digests_N, corpus.passage_ids, first)
    facts = {
        "shard": config.shard,
        "shards": config.shards,
        "passages": len(rows),
        "width": encoder.width,
        "model": model_key(encoder, config, context),
    }
    summary = f"shard {config.shard} of {config.shards}: {len(rows)} passages, {encoded.computed} of them encoded now"
    return Report(summary, metrics={"encoded": encoded.computed}, facts=facts)


STEP = Step(
    "encode",
    "encodes one shard of the passages, to build an index on many machines",
    Config,
    inputs=(CORPUS, RETRIEVER, GATE),
    outputs=(Port("vectors", "the passages' vectors"),),
    run=run,
    parallel=True,
)
