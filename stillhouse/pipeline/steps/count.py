"""Step `count`: counts the n-grams in one shard of the passages, on one machine; `importance` reads all shards."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.core.context import Context
from stillhouse.pipeline.steps.spec import TOKENS, Paths, Port, Report, ShardConfig, Step
from stillhouse.pretraining.settings import CountingConfig


@dataclass(frozen=True, kw_only=True)
class Config(ShardConfig, CountingConfig):
    """Which shard of the corpus to count, and how."""


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    from stillhouse.core.artifacts import read_manifest
    from stillhouse.core.own_machine import own_cores
    from stillhouse.pretraining.importance import Source, count_passages
    from stillhouse.pretraining.ngram_merge import Memory

    tokens = inputs["tokens"]
    whole = Source.open(tokens, read_manifest(tokens, verify=False).facts.get("tokenizer", ""))
    source = whole.shard(config.shard, config.shards)
    memory = Memory(config.memory_mib << 20, min(8, own_cores()))
    saved = count_passages(source, config.window, outputs["counts"], context.work, memory)
    distinct = {f"distinct_{n}_grams": count for n, count in enumerate(saved.distinct, start=1)}
    passages = len(source.offsets) - 1
    facts = {"shard": config.shard, "shards": config.shards, "passages": passages, "tokens": len(source.ids)} | distinct
    summary = (
        f"shard {config.shard} of {config.shards}: {passages} passages, {len(source.ids)} tokens, "
        f"distinct n-grams {' / '.join(map(str, distinct.values()))}"
    )
    return Report(summary, {name: float(value) for name, value in facts.items()}, facts)


STEP = Step(
    "count",
    "counts n-grams in one shard of the passages, to run importance on many machines",
    Config,
    inputs=(TOKENS,),
    outputs=(Port("counts", "n-gram counts"),),
    run=run,
)
