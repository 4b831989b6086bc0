"""Step `importance`: counts n-grams and scores every token by its average mutual information (CDMAE eq. 7-8)."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.pipeline.steps.spec import TOKENS, Paths, Port, Report, Step
from stillhouse.pretraining.settings import CountingConfig


@dataclass(frozen=True, kw_only=True)
class Config(CountingConfig):
    """Settings of `importance`."""

    min_count: int = setting(1, "drop n-grams (n > 1) that occur less often; their PMI is 0", minimum=1)


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    from stillhouse.core.artifacts import read_manifest
    from stillhouse.core.own_machine import own_cores
    from stillhouse.pretraining.importance import Source, write_importance
    from stillhouse.pretraining.ngram_merge import Memory

    source = Source.open(inputs["tokens"], read_manifest(inputs["tokens"], verify=False).facts.get("tokenizer", ""))
    memory = Memory(config.memory_mib << 20, min(8, own_cores()))
    saved, spread = write_importance(
        source, config.window, config.min_count, context.shares, outputs["importance"], context.work, memory
    )
    distinct = {f"distinct_{n}_grams": count for n, count in enumerate(saved.distinct, start=1)}
    facts = {"tokens": len(source.ids), "ami_standard_deviation": round(spread, 4), **distinct}
    # Algorithm 1 adds noise of a fixed size to AMI: how random its masks are depends on how far AMI values spread.
    summary = (
        f"{len(source.ids)} tokens, distinct n-grams {' / '.join(map(str, distinct.values()))}, "
        f"AMI spreads by {spread:.2f}"
    )
    if config.min_count > 1:
        dropped = saved.dropped[1:]
        facts |= {f"dropped_{n}_grams": round(share, 4) for n, share in enumerate(dropped, start=2)}
        summary += f"; pruning dropped {' / '.join(f'{share:.1%}' for share in dropped)} of the occurrences"
    return Report(summary, {name: float(value) for name, value in facts.items()}, facts)


STEP = Step(
    "importance",
    "counts n-grams and scores every token by its average mutual information (CDMAE eq. 7-8)",
    Config,
    inputs=(TOKENS,),
    outputs=(Port("importance", "n-gram counts and one AMI value per token"),),
    run=run,
)
