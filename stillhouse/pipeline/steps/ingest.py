"""Step `ingest`: reads a source of passages, queries and qrels into Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stillhouse.core.config import setting
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.core.remote.address import refuse_secret
from stillhouse.corpus.engine.ray_engine import open_engine
from stillhouse.pipeline.steps.spec import Paths, Port, Report, Step

if TYPE_CHECKING:
    from stillhouse.corpus.cleaning import CleanCorpus
    from stillhouse.corpus.sources.rows import Source

# Listed and not imported, so that the command line need not load the readers; a test compares both.
FORMATS = (
    "auto",
    "beir",
    "jsonl",
    "article-tree",
    "article-jsonl",
    "html-tree",
    "squad",
    "dpr",
    "msmarco",
    "reqa",
    "tables",
    "training",
    "ir_datasets",
)
TITLES = ("space", "colon", "line", "sep", "left_out")
ANSWER_KINDS = ("auto", "text", "regex")
DPR_POSITIVES = ("all", "first")
REQA_SPLITS = ("80/20", "10/90", "5/95", "1/99")
QUERIES = ("auto", "source", "pairs")
SPLIT_BY = ("sentence", "paragraph", "heading")
DOCUMENT_LABELS = ("best", "all")
PART_BYTES = 1 << 26
"""Bytes of a source that one process of an engine reads at a time: about 200,000 passages, a few seconds."""


def _most(of: str, default: int | None = None) -> Any:
    """A setting that limits how many of something are kept."""
    return setting(default, f"at most this many {of}; null = all", minimum=1)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of `ingest`."""

    source: str = setting("sample", "a folder or file, `sample` (built in), or `ir_datasets:<id>`", location=True)
    repo: str | None = setting(
        None,
        "a DVC repository (a git URL or a folder) that contains `source`; null = source is local",
        location=True,
    )
    revision: str | None = setting(
        None, "the repository's branch, tag or commit; null = its default branch", location=True
    )
    format: str = setting("auto", "source format; `auto` detects and reports it", choices=FORMATS)
    titles: str = setting(
        "space",
        "what every model and BM25 read between a passage's title and its text: `space`, `colon` (title: text), "
        "`line`, or `sep`, the tokenizer's separator (BM25: a space); `left_out` leaves titles out",
        choices=TITLES,
    )
    split_tokens: int | None = setting(
        None,
        "split passages that have more tokens than this, with their title, into pieces that have no more; null = no",
        minimum=16,
    )
    split_overlap: int = setting(0, "how many tokens of a piece may repeat the end of the previous one", minimum=0)
    split_by: str = setting(
        "paragraph",
        "the units of a piece: whole `sentence`s; whole `paragraph`s, if they are short enough; or the same within "
        "the section of each Markdown `heading`",
        choices=SPLIT_BY,
    )
    document_labels: str = setting(
        "best",
        "which passages are relevant where a qrel names a document: `best`, the one that BM25 ranks first, among those "
        "with an answer if there are any; or `all`",
        choices=DOCUMENT_LABELS,
    )
    splits: Mapping[str, str] | None = setting(
        None,
        "new names of source splits, as {dev: test} if the test labels are not public",
    )
    columns: Mapping[str, str] | None = setting(
        None,
        "tables: unusual names of columns, as {passages.text: body, queries.id: number}",
    )
    fields: tuple[str, ...] | None = setting(
        None,
        "a list of other fields of passages to keep, for filters in searches, such as product and date: keys of JSON, "
        "columns of tables, keys of Markdown's front matter, `lang` and `meta` elements of HTML; null = none",
    )
    answer_kind: str = setting(
        "auto",
        "the kind of answers, if the source does not say: texts or regular expressions; `auto` = regular expressions "
        "only in DPR's CuratedTREC",
        choices=ANSWER_KINDS,
    )
    dpr_positives: str = setting(
        "all", "DPR: whether all positives of a question are relevant, or only the first", choices=DPR_POSITIVES
    )
    reqa_split: str = setting(
        "80/20",
        "ReQA: the split of its queries into train and test (Chang et al. 2020 §4.1)",
        choices=REQA_SPLITS,
    )
    distractors: str | None = setting(
        None,
        "another source, whose passages are added without its queries (Chang et al. 2020 Table 6)",
        location=True,
    )
    max_distractors: int | None = _most("distractors, a seeded sample")
    dev_fraction: float = setting(
        0.1, "the share of train queries that becomes dev, if a source has no dev split", minimum=0, maximum=0.9
    )
    test_fraction: float = setting(
        0.0,
        "about the share of train queries that becomes test, if a source has neither dev nor test queries",
        minimum=0,
        maximum=0.9,
    )
    max_articles: int | None = _most("articles, a seeded sample; queries about others are dropped")
    max_train_queries: int | None = _most("train queries, a seeded sample")
    max_dev_queries: int | None = _most("dev queries, a seeded sample")
    max_test_queries: int | None = _most("test queries, a seeded sample")
    queries: str = setting(
        "auto",
        "where train queries come from: `source`, the labelled ones of the source; `pairs`, made from the corpus by "
        "the pair tasks, with held-out articles for dev and test; `auto`, pairs if the source has no train queries "
        "and no generated ones are given",
        choices=QUERIES,
    )
    pair_tasks: tuple[str, ...] | None = setting(
        None,
        "a list of the pair tasks ict, bfs and wlp, whose queries are sentences; null = those that the corpus supports",
    )
    pair_queries_per_article: int = setting(
        6,
        "at most this many pair queries per article, divided evenly among the tasks, at least one each; max_*_queries "
        "limit pair queries and labelled ones separately",
        minimum=1,
    )
    max_pair_queries: int | None = _most("pair queries in all splits together, a seeded sample", 50_000)
    pair_sentence_words: int = setting(6, "the fewest words of a sentence that becomes a pair query", minimum=1)
    pair_language: str = setting("en", "the language whose rules split sentences, by its ISO 639-1 code")
    heldout_dev_articles: float = setting(
        0.1, "with pairs or generated queries, the share of articles whose queries are dev", minimum=0, maximum=0.9
    )
    heldout_test_articles: float = setting(
        0.1, "with pairs or generated queries, the share of articles whose queries are test", minimum=0, maximum=0.9
    )
    mixed_pairs: float = setting(
        0.0,
        "sentences of the corpus, each with its own passage, to add to the labelled train queries, as a share of "
        "these; 0 = none",
        minimum=0.0,
    )
    dev_queries: str | None = setting(
        None,
        "a folder with labelled dev queries: queries.jsonl and qrels/dev.tsv, in BEIR layout, as `stillhouse label` "
        "writes them; the winner is chosen on these alone where other dev queries are made from the corpus",
        location=True,
    )
    test_queries: str | None = setting(
        None,
        "a folder with labelled test queries: queries.jsonl and qrels/test.tsv, in BEIR layout",
        location=True,
    )
    train_queries: str | None = setting(
        None,
        "a folder with more train queries: queries.jsonl and qrels/train.tsv, in BEIR layout, as `stillhouse queries "
        "export` writes them; any that repeats a dev or test query is left out",
        location=True,
    )
    seed: int = setting(42, "seed of every random choice", minimum=0)

    def __post_init__(self) -> None:
        refuse_secret(self.repo or "", "repo")
        if not self.source.strip() and not self.repo:
            raise InputError("source is empty, which would mean the current folder; give a corpus, such as `sample`")
        if self.queries == "source" and self.pair_tasks is not None:
            raise InputError("pair_tasks is for `queries: pairs`; leave it out, or set `queries: pairs`")
        if self.revision and not self.repo:
            raise InputError("revision belongs to a DVC repository; set `repo`, or leave revision out")
        if self.max_distractors and not self.distractors:
            raise InputError("max_distractors is for `distractors`; leave it out, or set `distractors`")
        if self.split_tokens and 2 * self.split_overlap > self.split_tokens:
            raise InputError("split_overlap is more than half of split_tokens; lower it")


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    """Raises `InputError` for a source that is missing, empty, damaged or of no known format."""
    from stillhouse.corpus.added_train_queries import AddedTrainQueries
    from stillhouse.corpus.cleaning_parts import Several
    from stillhouse.corpus.generated_queries import GeneratedQueries
    from stillhouse.corpus.ingestion import Choices, ingest_source
    from stillhouse.corpus.pair_queries import PairChoices, check_tasks
    from stillhouse.corpus.sources.detect import open_source
    from stillhouse.corpus.sources.distractors import with_distractors
    from stillhouse.corpus.sources.extra_queries import PLACES, with_queries
    from stillhouse.corpus.sources.options import Options
    from stillhouse.corpus.sources.split_names import check_splits, with_splits

    check_tasks(config.pair_tasks)
    if "generated" in inputs and config.queries == "pairs":
        raise InputError("--generated provides train queries instead of `queries: pairs`; leave one of them out")
    place, versioned = _place(config, context)
    options = Options(
        columns=config.columns,
        fields=tuple(config.fields or ()),
        answer_kind=config.answer_kind,
        dpr_positives=config.dpr_positives,
        reqa_split=config.reqa_split,
    )
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
    limits = {"train": config.max_train_queries, "dev": config.max_dev_queries, "test": config.max_test_queries}
    choices = Choices(
        max_articles=config.max_articles,
        dev_fraction=config.dev_fraction,
        test_fraction=config.test_fraction,
        max_queries=limits,
        seed=config.seed,
        queries=config.queries,
        titles=config.titles,
        pairs=PairChoices(
            tasks=config.pair_tasks,
            per_article=config.pair_queries_per_article,
            dev_fraction=config.heldout_dev_articles,
            test_fraction=config.heldout_test_articles,
            min_words=config.pair_sentence_words,
            language=config.pair_language,
            most=config.max_pair_queries,
            max_queries=limits,
            seed=config.seed,
        ),
        mixed_pairs=config.mixed_pairs,
        generated=GeneratedQueries(inputs["generated"]) if "generated" in inputs else None,
        added=AddedTrainQueries(Path(config.train_queries).expanduser()) if config.train_queries else None,
        of_documents=_keep_best if config.document_labels == "best" else lambda corpus: None,
    )
    watch = partial(context.progress, what="reading", unit="row")
    with open_engine(context.engine) as engine:
        several = None
        if engine:
            context.log(f"[ingest] {engine.sentence}")
            bar = partial(context.progress_of, "reading", "part")
            several = Several(engine.each, context.work, bar, PART_BYTES)
        facts = ingest_source(source, choices, outputs["corpus"], watch, several) | versioned
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
    if any(facts["answers"].values()):
        summary += f", {sum(facts['answers'].values()):,} answers"
    if facts["distractors"]:
        summary += f", {facts['distractors']:,} of the passages distractors"
    if facts["mixed_pairs"]:
        summary += f", {facts['mixed_pairs']:,} of the train queries made from the corpus"
    if "fields" in facts:
        summary += f", fields of passages: {', '.join(facts['fields'])}"
    if "generated_queries" in facts:
        summary += f", {sum(facts['generated_queries'].values()):,} of the queries made by a language model"
    if facts.get("added_train_queries"):
        summary += f", {facts['added_train_queries']:,} of the train queries added"
    if facts.get("unjudged"):
        summary += f", {facts['unjudged']:,} questions without labels"
    if facts.get("documents"):
        summary += f", qrels of {facts['documents']:,} documents"
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


def _with_pieces(config: Config, source: Source, tokenizer: Path | None) -> Source:
    from stillhouse.corpus.sources.pieces import Splitting, with_pieces
    from stillhouse.corpus.text_lengths import estimated_tokens
    from stillhouse.models.token_lengths import token_counter

    assert config.split_tokens
    count = token_counter(tokenizer) if tokenizer else estimated_tokens
    splitting = Splitting(config.split_tokens, config.split_overlap, config.split_by, config.titles, count)
    return with_pieces(source, splitting)


def _place(config: Config, context: Context) -> tuple[str, dict[str, Any]]:
    """Where the source lies on this machine and, for a DVC repository, which version of it."""
    if not config.repo:
        return config.source, {}
    from stillhouse.core.remote.dvc_source import fetch

    target = context.work / "source" / (Path(config.source).name or "source")
    found = fetch(config.repo, config.revision or "", config.source, target)
    context.log(f"[ingest] {config.source} of {config.repo} at {found.commit}, DVC digest {found.digest or 'none'}")
    return str(target), {"versioned": found.plain()}


def _pair_lines(config: Config, facts: Mapping[str, Any]) -> Iterator[str]:
    """Warnings about queries that nobody labelled."""
    if "pair_queries_not_made" in facts:
        why = facts["pair_queries_not_made"]
        yield f"NO TRAIN QUERIES: the source has none, and none are made from the corpus: {why}"
    if "mixed_pairs_not_made" in facts:
        yield f"no sentences of the corpus join the train queries: {facts['mixed_pairs_not_made']}"
    for split, count in facts.get("generated_queries", {}).items():
        kind = "synthetic" if "synthetic" in facts["labels"] else "more"
        articles = facts["articles_of_split"][split]
        yield f"{kind} {split} queries, by a language model, of {articles:,} articles: {count:,}"
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
        yield f"synthetic {split} queries of {facts['articles_of_split'][split]:,} articles: {made}"
    if facts["verbatim"]:
        yield (
            "every article has one passage, so a query is a sentence of the very passage to be found: figures on such "
            "queries mostly show string matching"
        )


STEP = Step(
    "ingest",
    "converts a source of passages, queries and qrels to Parquet",
    Config,
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
    outputs=(Port("corpus", "the corpus folder"),),
    run=run,
    version=3,
    divided=True,
)
