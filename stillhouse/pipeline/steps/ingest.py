"""Step `ingest`: reads a source of passages, queries and qrels into Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.corpus.engine.ray_engine import open_engine
from stillhouse.corpus.settings import IngestSettings
from stillhouse.pipeline.steps.spec import CORPUS, Paths, Port, Report, Step

if TYPE_CHECKING:
    from stillhouse.corpus.cleaning import CleanCorpus
    from stillhouse.corpus.sources.rows import Source

PART_BYTES = 1 << 26
"""Bytes of a source that one process of an engine reads at a time: about 200,000 passages, a few seconds."""
COUNTED = {
    "answers": "{} answers",
    "distractors": "{} of the passages distractors",
    "generated_queries": "{} of the queries made by a language model",
    "added_train_queries": "{} of the train queries added",
    "unjudged": "{} questions without labels",
    "documents": "qrels of {} documents",
}
"""Facts that the summary counts, if there are any."""


def run(config: IngestSettings, inputs: Paths, outputs: Paths, context: Context) -> Report:
    """Raises `InputError` for a source that is missing, empty, damaged or of no known format."""
    from stillhouse.corpus.cleaning_parts import Several
    from stillhouse.corpus.ingestion import ingest_source
    from stillhouse.corpus.more_queries import AddedTrainQueries, GeneratedQueries
    from stillhouse.corpus.sources.detect import open_source
    from stillhouse.corpus.sources.distractors import with_distractors
    from stillhouse.corpus.sources.labels import PLACES, with_queries
    from stillhouse.corpus.sources.options import Options
    from stillhouse.corpus.sources.rows import check_splits, with_splits

    if "generated" in inputs and config.queries == "pairs":
        raise InputError("--generated provides train queries instead of `queries: pairs`; leave one of them out")
    place, versioned = _place(config, context)
    options = Options(columns=config.columns, fields=tuple(config.fields or ()), reqa_split=config.reqa_split)
    names = check_splits(config.splits or {})
    source = with_splits(open_source(place, config.format, options), names)
    if config.distractors:
        other = open_source(config.distractors)
        source = with_distractors(source, other, config.max_distractors, config.seed, config.pair_language)
    for setting_of in PLACES:
        if folder := getattr(config, setting_of):
            source = with_queries(source, setting_of, Path(folder).expanduser())
    if config.split_tokens:
        source = _with_pieces(config, source, inputs.get("tokenizer"))
    context.log(f"[ingest] {config.source} is read as {source.format}, {len(source.files):,} files")
    for note in source.notes:
        context.log(f"[ingest] {note}")
    questions = GeneratedQueries(inputs["generated"]) if "generated" in inputs else None
    more = AddedTrainQueries(Path(config.train_queries).expanduser()) if config.train_queries else None
    watch = partial(context.progress, what="reading", unit="row")
    with open_engine(context.engine) as engine:
        several = None
        if engine:
            context.log(f"[ingest] {engine.sentence}")
            several = Several(
                engine.each,
                context.work,
                lambda items, total: context.progress(items, "reading", total, "part"),
                PART_BYTES,
            )
        facts = ingest_source(
            source, config, outputs["corpus"], watch, several, questions=questions, more=more, of_documents=_keep_best
        )
    facts |= versioned
    if config.split_tokens:
        facts["split"] = {"tokens": config.split_tokens, "overlap": config.split_overlap, "by": config.split_by}

    if missing := sorted({*(config.fields or ())} - {*facts.get("fields", ())}):
        raise InputError(f"fields: no passage of {config.source} has {', '.join(missing)}; leave that out")
    for reason, count in facts["rejected"].items():
        context.log(f"[ingest] rejected {count:,} × {reason}")
    for reason, count in facts["left_out"].items():
        context.log(f"[ingest] left out {count:,} × {reason}")
    for reason, count in facts.get("not_added", {}).items():
        context.log(f"[ingest] left out {count:,} added train queries × {reason}")
    for line in _pair_lines(config, facts):
        context.log(f"[ingest] {line}")
    rejected = sum(facts["rejected"].values())
    queries = " / ".join(f"{count:,} {split}" for split, count in facts["queries"].items())
    summary = f"{facts['passages']:,} passages of {facts['articles']:,} articles, {facts['links']:,} links, "
    summary += f"queries {queries} (labels: {facts['labels']}), {rejected:,} rows rejected"
    for name, words in COUNTED.items():
        counted = facts.get(name, 0)
        if total := sum(counted.values()) if isinstance(counted, Mapping) else counted:
            summary += f", {words.format(f'{total:,}')}"
    if "fields" in facts:
        summary += f", fields of passages: {', '.join(facts['fields'])}"
    for split in ("dev", "test"):
        if drawn := facts[f"drawn_{split}"]:
            summary += f", {split} drawn from train ({drawn:,})"
    metrics = {name: float(facts[name]) for name in ("passages", "articles", "links")}
    metrics |= {f"queries_{split}": float(count) for split, count in facts["queries"].items()}
    return Report(summary, metrics | {"rejected": float(rejected)}, facts)


def _keep_best(corpus: CleanCorpus) -> None:
    if corpus.documents:
        from stillhouse.search.document_labels import keep_best  # imports bm25s

        keep_best(corpus)


def _with_pieces(config: IngestSettings, source: Source, tokenizer: Path | None) -> Source:
    from stillhouse.corpus.sources.pieces import Splitting, with_pieces
    from stillhouse.corpus.words import estimated_tokens
    from stillhouse.models.token_lengths import token_counter

    assert config.split_tokens
    count = token_counter(tokenizer) if tokenizer else estimated_tokens
    splitting = Splitting(config.split_tokens, config.split_overlap, config.split_by, config.titles, count)
    return with_pieces(source, splitting)


def _place(config: IngestSettings, context: Context) -> tuple[str, dict[str, Any]]:
    """Where the source lies on this machine and, for a DVC repository, which version of it."""
    if not config.repo:
        return config.source, {}
    from stillhouse.core.remote.dvc_source import fetch

    target = context.work / "source" / (Path(config.source).name or "source")
    found = fetch(config.repo, config.revision or "", {config.source: target})[config.source]
    context.log(f"[ingest] {config.source} of {config.repo} at {found.commit}, DVC digest {found.digest or 'none'}")
    return str(target), {"versioned": found.plain()}


def _pair_lines(config: IngestSettings, facts: Mapping[str, Any]) -> Iterator[str]:
    """Warnings about queries that nobody labelled."""
    if "pair_queries_not_made" in facts:
        why = facts["pair_queries_not_made"]
        yield f"NO TRAIN QUERIES: the source has none, and none are made from the corpus: {why}"
    parts = facts.get("articles_of_split", {})
    noun = "articles" if sum(parts.values()) <= facts["articles"] else "runs of passages (as articles)"
    for split, count in facts.get("generated_queries", {}).items():
        kind = "synthetic" if "synthetic" in facts["labels"] else "more"
        yield f"{kind} {split} queries, by a language model, of {parts[split]:,} {noun}: {count:,}"
    if "pair_queries" not in facts:
        return
    if config.queries == "auto":
        yield (
            "THE SOURCE HAS NO TRAIN QUERIES: they are made from the corpus (`queries: pairs`), and figures on them "
            "are SYNTHETIC; `queries: source` prevents that"
        )
    if facts["labelled_train_left_out"]:
        yield f"{facts['labelled_train_left_out']:,} labelled train queries are left out, because of `queries: pairs`"
    for split, counts in facts["pair_queries"].items():
        made = ", ".join(f"{count:,} {task}" for task, count in counts.items())
        yield f"synthetic {split} queries of {parts[split]:,} {noun}: {made}"
    if facts["verbatim"]:
        yield (
            "every article has one passage, so a query is a sentence of the very passage to be found: figures on such "
            "queries mostly show string matching"
        )


STEP = Step(
    "ingest",
    "converts a source of passages, queries and qrels to Parquet",
    IngestSettings,
    inputs=(
        Port(
            "generated",
            "questions about these passages from `generate-queries`: added to the labelled train queries or, without "
            "any, used as train, dev and test queries instead of pair queries",
            optional=True,
        ),
        Port(
            "tokenizer",
            "the model folder whose tokenizer counts `split_tokens`; without it, they are estimated from words",
            kind="model",
            optional=True,
        ),
    ),
    outputs=(CORPUS,),
    run=run,
    version=11,
    divided=True,
)
