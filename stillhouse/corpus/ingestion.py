"""From a source to the tables of a corpus folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.artifacts import digest_file, digest_json
from stillhouse.corpus.cleaning import CleanCorpus, clean
from stillhouse.corpus.sources.rows import Row, Source
from stillhouse.corpus.splitting import draw_dev, sample_articles, sample_queries
from stillhouse.corpus.store import SPLITS, Columns, write_tables


@dataclass(frozen=True, kw_only=True)
class Choices:
    """How dev is drawn and how many articles and queries of each split are kept (0 = all), by seed."""

    max_articles: int = 0
    dev_fraction: float = 0.0
    max_queries: Mapping[str, int]
    seed: int


def ingest_source(
    source: Source, choices: Choices, folder: Path, watch: Callable[[Iterable[Row]], Iterable[Row]] = iter
) -> dict[str, Any]:
    """Cleans a source and writes its tables into `folder`. Returns the facts of the corpus manifest.

    `watch` wraps the rows as they are read: a progress bar.
    """
    corpus = clean(watch(source.rows()))
    beyond = sample_articles(corpus, choices.max_articles, choices.seed)
    drawn = draw_dev(corpus, choices.dev_fraction, choices.seed)
    sampled_out = sample_queries(corpus, choices.max_queries, choices.seed)
    write_tables(folder, tables_of(corpus))
    queries = Counter(corpus.split_of.values())
    qrels = Counter(row.split for row, _ in corpus.qrels)
    return {
        "format": source.format,
        "source_digest": digest_json({name: digest_file(path) for name, path in source.files.items()}),
        "passages": len(corpus.passages),
        "articles": len({passage.article_id for passage in corpus.passages.values()}),
        "links": len(corpus.links),
        "queries": {split: queries[split] for split in SPLITS},
        "qrels": {split: qrels[split] for split in SPLITS},
        "rejected": corpus.reasons(),
        "drawn_dev": drawn,
        "sampled_out": {split: beyond.get(split, 0) + sampled_out.get(split, 0) for split in SPLITS},
    }


def tables_of(corpus: CleanCorpus) -> dict[str, Columns]:
    """The columns of every table. Rows stand in source order, queries and qrels split by split."""
    passages = list(corpus.passages.values())
    queries = [corpus.queries[id] for split in SPLITS for id in corpus.queries if corpus.split_of[id] == split]
    qrels = [(row, relevance) for split in SPLITS for row, relevance in corpus.qrels if row.split == split]
    return {
        "passages": {
            "passage_id": [row.id for row in passages],
            "title": [row.title for row in passages],
            "text": [row.text for row in passages],
            "article_id": [row.article_id for row in passages],
            "section": [row.section for row in passages],
            "position": [row.position for row in passages],
        },
        "links": {"source": [source for source, _ in corpus.links], "target": [target for _, target in corpus.links]},
        "queries": {
            "query_id": [row.id for row in queries],
            "text": [row.text for row in queries],
            "split": [corpus.split_of[row.id] for row in queries],
        },
        "qrels": {
            "query_id": [row.query_id for row, _ in qrels],
            "passage_id": [row.passage_id for row, _ in qrels],
            "relevance": [relevance for _, relevance in qrels],
            "split": [row.split for row, _ in qrels],
        },
        "rejected": {
            name: [getattr(row, name) for row in corpus.rejected]
            for name in ("kind", "id", "reason", "where", "content")
        },
    }
