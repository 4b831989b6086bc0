"""Train queries that join those of a source from a folder of their own: what people clicked, for instance.

They are for training alone. One that repeats a dev or test query is left out, and so is one about an article that made
queries are measured on, or the figures would tell of what was trained on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

from stillhouse.corpus.cleaning import CleanCorpus, normalise
from stillhouse.corpus.pair_queries import PairQuery
from stillhouse.corpus.schemas import ADDED
from stillhouse.corpus.sources.labels import find_labels, read_labels
from stillhouse.corpus.sources.rows import Qrel, Query, Rejected
from stillhouse.errors import InputError

PLACE = "train_queries"
"""What stands before the file names of these queries in `rejected.parquet`, and in what is digested of a source."""


@dataclass(frozen=True)
class AddedTrainQueries:
    """A folder with queries.jsonl and qrels/train.tsv. Raises `InputError` where it lacks one of them."""

    folder: Path

    def __post_init__(self) -> None:
        if len(self.files()) < 2:
            raise InputError(
                f"train_queries: {self.folder} must be a folder with queries.jsonl (_id, text) and qrels/train.tsv "
                "(query-id, corpus-id, score), as `stillhouse queries export` writes it"
            )

    def files(self) -> dict[str, Path]:
        return {name: path for name, path in find_labels(self.folder).items() if "/" not in name or "train.tsv" in name}

    def join(self, corpus: CleanCorpus, held_out: Set[str] = frozenset()) -> tuple[list[PairQuery], Counter[str]]:
        """Adds the queries and their relevant passages to `corpus`, whose splits are drawn already.

        Returns the queries that are new there, one row each, and how many rows were left out for each reason.
        `held_out` are articles about which nothing is trained. A query with the text of a train query adds its passages
        to that one.
        """
        texts, pairs, out = self._read(corpus)
        by_text = {normalise(query.text): id for id, query in corpus.queries.items()}
        known = {(row.query_id, row.passage_id) for row, _ in corpus.qrels}
        rows_K = corpus.passages.rows_of([passage for _, passage in pairs]).tolist()
        articles = corpus.passages.own_articles()
        new: dict[str, PairQuery] = {}
        for (id, passage), row in zip(pairs, rows_K):
            text = texts.get(id, "")
            there = by_text.get(normalise(text))
            if not text.strip():
                out["qrel: points to no query"] += 1
            elif row < 0:
                out["qrel: points to no passage"] += 1
            elif there is not None and corpus.split_of[there] != "train":
                out[f"qrel: its query is a {corpus.split_of[there]} query"] += 1
            elif held_out and articles[row].as_py() in held_out:
                out["qrel: its article is held out for dev or test"] += 1
            elif there is None and id in corpus.queries:
                out["qrel: its query's id is that of another query"] += 1
            elif (there or id, passage) in known:
                out["qrel: known already"] += 1
            else:
                own = there or id
                if there is None:
                    corpus.queries[id] = Query(id, text, f"{PLACE}/queries.jsonl")
                    corpus.split_of[id] = "train"
                    by_text[normalise(text)] = id
                    new[id] = PairQuery(id, text, "train", ADDED, "", passage)
                known.add((own, passage))
                corpus.qrels.append((Qrel(own, passage, "1", "train", f"{PLACE}/qrels/train.tsv"), 1))
        return list(new.values()), out

    def _read(self, corpus: CleanCorpus) -> tuple[dict[str, str], list[tuple[str, str]], Counter[str]]:
        """Query texts by id, (query id, passage id) of what is relevant, and the rows that cannot be read."""
        texts: dict[str, str] = {}
        pairs: list[tuple[str, str]] = []
        out: Counter[str] = Counter()
        for row in read_labels(self.files()):
            if isinstance(row, Rejected):
                corpus.rejected.append(row._replace(where=f"{PLACE}/{row.where}"))
            elif isinstance(row, Query):
                texts.setdefault(row.id, row.text)
            elif row.relevance.strip() in ("", "0") or row.relevance.startswith("-"):
                out["qrel: not relevant"] += 1
            else:
                pairs.append((row.query_id, row.passage_id))
        return texts, pairs, out
