"""Step `ingest`: reads a source of passages, queries and qrels into Parquet."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.steps.spec import Paths, Port, Report, Step

# Spelled out and not imported, so that the command line need not load the readers; a test holds both together.
FORMATS = ("auto", "beir", "jsonl", "article-tree", "article-jsonl")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of `ingest`."""

    source: str = setting("sample", "a folder, a .jsonl[.gz] file, or `sample`, the built-in one", location=True)
    format: str = setting("auto", "how the source is read; `auto` finds out and says so", choices=FORMATS)
    dev_fraction: float = setting(
        0.1, "the part of the train queries that becomes dev, where a source has no dev split", minimum=0, maximum=0.9
    )
    max_articles: int = setting(
        0,
        "at most so many articles, a seeded sample for a trial; queries on others leave; 0 takes all",
        minimum=0,
    )
    max_train_queries: int = setting(0, "at most so many train queries, a seeded sample; 0 takes all", minimum=0)
    max_dev_queries: int = setting(0, "at most so many dev queries, a seeded sample; 0 takes all", minimum=0)
    max_test_queries: int = setting(0, "at most so many test queries, a seeded sample; 0 takes all", minimum=0)
    seed: int = setting(42, "seed of every random choice", minimum=0)


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    """Raises `InputError` for a source that is missing, empty, damaged or of no known format."""
    from stillhouse.corpus.ingestion import Choices, ingest_source
    from stillhouse.corpus.sources.detect import open_source

    source = open_source(config.source, config.format)
    context.log(f"[ingest] {config.source} is read as {source.format}, {len(source.files):,} files")
    limits = {"train": config.max_train_queries, "dev": config.max_dev_queries, "test": config.max_test_queries}
    choices = Choices(
        max_articles=config.max_articles, dev_fraction=config.dev_fraction, max_queries=limits, seed=config.seed
    )
    watch = partial(context.progress, what="reading", unit="row")
    facts = ingest_source(source, choices, outputs["corpus"], watch)

    for reason, count in facts["rejected"].items():
        context.log(f"[ingest] rejected {count:,} × {reason}")
    rejected = sum(facts["rejected"].values())
    queries = " / ".join(f"{count:,} {split}" for split, count in facts["queries"].items())
    summary = f"{facts['passages']:,} passages of {facts['articles']:,} articles, {facts['links']:,} links, "
    summary += f"queries {queries}, {rejected:,} rows rejected"
    if facts["drawn_dev"]:
        summary += f", dev drawn from train ({facts['drawn_dev']:,})"
    metrics = {name: float(facts[name]) for name in ("passages", "articles", "links")}
    metrics |= {f"queries_{split}": float(count) for split, count in facts["queries"].items()}
    return Report(summary, metrics | {"rejected": float(rejected)}, facts)


STEP = Step(
    "ingest",
    "reads a source of passages, queries and qrels into Parquet",
    Config,
    inputs=(),
    outputs=(Port("corpus", "the corpus folder"),),
    run=run,
)
