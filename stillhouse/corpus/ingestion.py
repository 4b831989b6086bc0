"""Turns a source into the tables of a corpus folder."""

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from stillhouse.core.artifacts import digest_file, digest_json
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.cleaning import CleanCorpus, clean
from stillhouse.corpus.cleaning_parts import Several, clean_parts
from stillhouse.corpus.more_queries import PLACE as ADDED_PLACE
from stillhouse.corpus.more_queries import AddedTrainQueries, GeneratedQueries
from stillhouse.corpus.pair_queries import PairQueries, PairQuery, divisible, make_pair_queries
from stillhouse.corpus.schemas import GENERATED, SOURCE, SPLITS
from stillhouse.corpus.settings import IngestSettings
from stillhouse.corpus.sources.distractors import PLACE as DISTRACTORS
from stillhouse.corpus.sources.distractors import PREFIX as DISTRACTOR
from stillhouse.corpus.sources.labels import PLACES
from stillhouse.corpus.sources.rows import Each, Qrel, Query, Rejected, Row, Source, split_at
from stillhouse.corpus.splitting import draw_dev, draw_test, remove_train, sample_articles, sample_queries
from stillhouse.corpus.store import write_rows
from stillhouse.corpus.titles import LEFT_OUT

FILES_TOGETHER = 1000
"""Files that one process digests per call."""
OBJECTS = 100_000
"""New objects after which Python's garbage collector runs while rows are read."""
LABELS = ("qrel", "answer", "query")


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Runs Python's garbage collector once per `OBJECTS` new objects: rows have no cycles, and each run takes time."""
    before = gc.get_threshold()
    gc.set_threshold(OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def ingest_source(
    source: Source,
    settings: IngestSettings,
    folder: Path,
    watch: Callable[[Iterable[Row]], Iterable[Row]] = iter,
    several: Several | None = None,
    *,
    questions: GeneratedQueries | None = None,
    more: AddedTrainQueries | None = None,
    of_documents: Callable[[CleanCorpus], None] = lambda corpus: None,
) -> dict[str, Any]:
    """Cleans a source and writes its tables into `folder`. Returns the facts of the corpus manifest.

    `watch` wraps the rows as they are read, for a progress bar. With `several`, several processes read the source part
    by part; the tables and facts are the same. The `questions` of a language model are added to the labelled train
    queries or, if there are none, replace pair queries. The train queries `more` are added last. They do not count as
    labels: without other labels, queries are made as usual. `of_documents` chooses among the qrels of passages that
    stand for a qrel of their document.
    """
    if source.candidates and settings.titles == LEFT_OUT:
        raise InputError("titles: left_out would leave out the sentence of every ReQA candidate; choose another")
    with seldom_collected():
        if several is None:
            corpus = clean(watch(source.rows()), folder / "passages.parquet")
        else:
            corpus = clean_parts(source, several, folder / "passages.parquet")
    for place in PLACES:
        _require_queries(place, source, corpus)
    refuse_lost(corpus)
    beyond = sample_articles(corpus, settings.max_articles, settings.seed)
    if questions:
        questions.refuse_other_passages(folder / "passages.parquet")
    has_train = "train" in corpus.split_of.values()
    of_pairs = settings.queries == "pairs" or (settings.queries == "auto" and not has_train and not questions)
    left_out = remove_train(corpus) if of_pairs else 0
    drawn_test = draw_test(corpus, settings.test_fraction, settings.seed)
    drawn = draw_dev(corpus, settings.dev_fraction, settings.seed)
    sampled_out = sample_queries(corpus, settings.max_queries, settings.seed)
    documents = {corpus.documents.get((row.query_id, row.passage_id), "") for row, _ in corpus.qrels} - {""}
    of_documents(corpus)
    labelled = len(corpus.queries)
    corpus.not_prose = _taken(corpus)
    made, not_made = None, ""
    if of_pairs:
        texts = [query.text for query in corpus.queries.values()]
        try:
            made = make_pair_queries(corpus.passages, corpus.links, settings, texts, corpus.not_prose)
        except InputError as error:
            # A corpus without labels still serves pre-training and search, unless pairs were requested.
            if settings.queries == "pairs" or settings.pair_tasks is not None:
                raise
            not_made = str(error)
        else:
            _add(corpus, made)
    generated = _take_generated(corpus, settings, questions, has_train) if questions else None
    synthetic = made is not None or (generated is not None and not has_train)
    added: list[PairQuery] = []
    not_added = Counter[str]()
    if more:
        added, not_added = _take_added(corpus, more, (made, generated), settings)
    distractors = sum(id.startswith(DISTRACTOR) for id in corpus.passages) if _has(source, DISTRACTORS) else 0
    with doing("writing the corpus"):
        parts = [made.queries if made else (), generated.queries if generated else (), added]
        for name, rows in tables_of(corpus, [query for part in parts for query in part]).items():
            write_rows(folder, name, rows)
        fields = corpus.passages.fields.write_typed(folder, source.cells)
    queries = Counter(corpus.split_of.values())
    qrels = Counter(row.split for row, _ in corpus.qrels)
    answers = Counter(corpus.split_of[id] for id, _, _ in corpus.answers)
    files = source.files | {f"{ADDED_PLACE}/{name}": path for name, path in (more.files if more else {}).items()}
    digests = _digests(files, several.each if several else map)
    identity = {"": source.identity} if source.identity else {}
    facts: dict[str, Any] = {
        "format": source.format,
        "source_digest": digest_json(digests | identity),
        "passages": len(corpus.passages),
        "distractors": distractors,
        "articles": corpus.passages.articles,
        "links": len(corpus.links),
        "queries": {split: queries[split] for split in SPLITS},
        "qrels": {split: qrels[split] for split in SPLITS},
        "answers": {split: answers[split] for split in SPLITS},
        "rejected": corpus.reasons(),
        "left_out": dict(sorted(corpus.left_out.items())),
        "titles": settings.titles,
        "drawn_dev": drawn,
        "drawn_test": drawn_test,
        "sampled_out": {split: beyond.get(split, 0) + sampled_out.get(split, 0) for split in SPLITS},
        "labels": "+".join(["synthetic"] * synthetic + [SOURCE] * (labelled > 0)) or "none",
    }
    if more:
        facts |= {"added_train_queries": len(added), "not_added": dict(sorted(not_added.items()))}
    some = {
        "documents": len(documents),
        "split_passages_judged": bool(documents) and not corpus.passages.has_articles(list(documents)).any(),
        "fields": fields,
        "unjudged": len(corpus.unjudged),
        "not_prose": dict(sorted(Counter(corpus.not_prose.values()).items())),
        "pair_queries_not_made": not_made,
    }
    facts |= {name: fact for name, fact in some.items() if fact}
    if made is not None:
        facts |= {
            "pair_tasks": "+".join(made.tasks),
            "pair_queries": made.counts(),
            "articles_of_split": dict(made.articles),
            "verbatim": made.verbatim,
            "labelled_train_left_out": left_out,
        }
    if generated is not None:
        facts["generated_queries"] = {split: counts[GENERATED] for split, counts in generated.counts().items()}
        facts["articles_of_split"] = dict(generated.articles)
    return facts


def _digests(files: Mapping[str, Path], each: Each) -> dict[str, str]:
    """The digest of every file, by its name."""
    paths = list(files.values())
    together = [paths[begin : begin + FILES_TOGETHER] for begin in range(0, len(paths), FILES_TOGETHER)]
    return dict(zip(files, chain.from_iterable(each(_digests_of, together))))


def _digests_of(paths: Sequence[Path]) -> list[str]:
    return list(map(digest_file, paths))


def _taken(corpus: CleanCorpus) -> dict[str, str]:
    """The accepted passages that are not prose, with their kind."""
    rows = corpus.passages.rows_of(list(corpus.not_prose))
    return {id: kind for (id, kind), row in zip(corpus.not_prose.items(), rows.tolist()) if row >= 0}


def _has(source: Source, place: str) -> bool:
    """Whether files were added to a source under `place`."""
    return any(name.startswith(f"{place}/") for name in source.files)


def _require_queries(place: str, source: Source, corpus: CleanCorpus) -> None:
    """Raises `InputError` if all dev or test queries that the user added were rejected."""
    if not _has(source, place):
        return
    if not any(qrel.where.startswith(place) for qrel, _ in corpus.qrels):
        reasons = ", ".join(corpus.reasons())
        raise InputError(
            f"{place}: no query of {next(p for n, p in source.files.items() if n.startswith(place)).parent} was "
            f"accepted ({reasons}); its qrels/{PLACES[place]}.tsv must name passages of the source by their ids"
        )


def _add(corpus: CleanCorpus, made: PairQueries) -> None:
    """Appends generated queries to the existing ones. Raises `InputError` if an id is already in use."""
    for query in made.queries:
        if query.id in corpus.queries:
            raise InputError(
                f"the source has a query {query.id!r}, which is also the id of a generated query; rename it"
            )
        corpus.queries[query.id] = Query(query.id, query.text, "")
        corpus.split_of[query.id] = query.split
        corpus.qrels.append((Qrel(query.id, query.positive, "1", query.split, ""), 1))


def _take_generated(
    corpus: CleanCorpus, settings: IngestSettings, questions: GeneratedQueries, has_train: bool
) -> PairQueries:
    """Adds a language model's questions: all to train if there are labelled train queries, else to every split."""
    if has_train:
        every: dict[str, Any] = dict.fromkeys(f"max_{split}_queries" for split in SPLITS)
        settings = replace(settings, heldout_dev_articles=0.0, heldout_test_articles=0.0, **every)
    made = questions.divided(corpus.passages, settings, [query.text for query in corpus.queries.values()])
    _add(corpus, made)
    return made


def _take_added(
    corpus: CleanCorpus, added: AddedTrainQueries, made: Iterable[PairQueries | None], settings: IngestSettings
) -> tuple[list[PairQuery], Counter[str]]:
    """Adds train queries from another folder; the articles of generated dev and test queries stay held out."""
    measured = [query.positive for part in made if part for query in part.queries if query.split != "train"]
    if not measured:
        return added.join(corpus)
    article_P = divisible(corpus.passages, (), settings)[0].article_P
    return added.join(corpus, np.isin(article_P, article_P[corpus.passages.rows_of(measured)]))


def tables_of(corpus: CleanCorpus, made: Sequence[PairQuery] = ()) -> dict[str, list[Sequence[object]]]:
    """The rows of every table except `passages`, in source order, those of queries and qrels also split by split.

    `made` are the queries of the corpus that did not come with the source.
    """
    made_by = {query.id: (query.task, query.taken_from) for query in made}
    splits = corpus.split_of
    asked = [(id, split) for split in SPLITS for id in corpus.queries if splits[id] == split]
    qrels = [(row, relevance) for split in SPLITS for row, relevance in corpus.qrels if row.split == split]
    tables: dict[str, list[Sequence[object]]] = {
        "links": list(corpus.links),
        "queries": [(id, corpus.queries[id].text, split, *made_by.get(id, (SOURCE, ""))) for id, split in asked],
        "qrels": [(row.query_id, row.passage_id, relevance, row.split) for row, relevance in qrels],
        "answers": [(*key, split) for split in SPLITS for key in corpus.answers if splits[key[0]] == split],
        "rejected": list(corpus.rejected),
    }
    sparse: dict[str, list[Sequence[object]]] = {
        "not_prose": list(corpus.not_prose.items()),
        "unjudged": [(row.id, row.text) for row in corpus.unjudged.values()],
    }
    return tables | {name: rows for name, rows in sparse.items() if rows}


def refuse_lost(corpus: CleanCorpus) -> None:
    """Raises `InputError` if there is no passage, or if the source has labels for a split and none are usable."""
    if not len(corpus.passages):
        raise InputError(
            f"the source has no passage{_why(corpus.rejected)}; correct these rows, or name another source or format"
        )
    rows = [row for row in corpus.rejected if row.kind in LABELS]
    given = corpus.given | Counter(split for row in rows if row.kind == "qrel" and (split := split_at(row.where)))
    taken = set(corpus.split_of.values())
    for split in SPLITS:
        if given[split] and split not in taken:
            own = [row for row in rows if split_at(row.where) == split] or rows
            raise InputError(
                f"the source has labels of {split}, and no question could be read with one{_why(own)}; correct these "
                f"rows, or take the labels of {split} away"
            )


def _why(rows: Iterable[Rejected]) -> str:
    """The most frequent reason, and the first row with it."""
    counts = Counter((row.kind, row.reason) for row in rows)
    if not counts:
        return ""
    (kind, reason), count = counts.most_common(1)[0]
    first = next(row for row in rows if (row.kind, row.reason) == (kind, reason))
    return f" ({count:,} × {kind}: {reason}; the first is {first.where}: {first.content})"
