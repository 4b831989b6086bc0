"""Queries that are added to a source: questions of `generate-queries`, and train queries from a separate folder.

Generated questions are about the same passages, and are split like pair queries: train, dev and test share no article.
If the source has labelled train queries, the questions are added to these, and no metric is computed on them.

Train queries from a folder, such as those derived from clicks, are used only for training. A query that repeats a dev
or test query is left out, and so is one about an article that synthetic dev or test queries ask about, since metrics
would otherwise be computed on training data.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillhouse.core.artifacts import digest_file, read_manifest
from stillhouse.core.errors import InputError
from stillhouse.corpus.cleaning import (
    NO_WHOLE_NUMBER,
    CleanCorpus,
    id_fault,
    normalise,
    reject,
    reject_qrel,
    relevance_of,
)
from stillhouse.corpus.pair_queries import PairQueries, PairQuery, divisible, sampled, split_articles
from stillhouse.corpus.schemas import ADDED, GENERATED, SPLITS
from stillhouse.corpus.settings import IngestSettings
from stillhouse.corpus.sources.labels import labels_in, read_labels
from stillhouse.corpus.sources.rows import Qrel, Query, Rejected
from stillhouse.corpus.sources.text_encoding import is_unicode
from stillhouse.corpus.store import Corpus
from stillhouse.corpus.taken_passages import TakenPassages

PLACE = "train_queries"
"""The prefix of these queries' file names in `rejected.parquet` and in the digest of a source."""


@dataclass(frozen=True)
class GeneratedQueries:
    """A folder that `generate-queries` wrote."""

    folder: Path

    def refuse_other_passages(self, passages: Path) -> None:
        """Raises `InputError` if the questions are not about the passages in a corpus's `passages.parquet`."""
        facts = read_manifest(self.folder, verify=False).facts
        if facts.get("passages_digest") != digest_file(passages):
            raise InputError(
                f"{self.folder} has questions about passages that this source does not have; ingest the source "
                "without --generated, run `stillhouse generate-queries` on the result, and ingest again with its "
                "output"
            )

    def divided(self, passages: TakenPassages, settings: IngestSettings, taken: Iterable[str] = ()) -> PairQueries:
        """Assigns each question to the split of its passage's article, as `make_pair_queries` does.

        Uses the fractions, the limits per split and the seed of `settings`. `taken` are the texts of labelled queries;
        a question that repeats one is left out. Raises `InputError` if no train query is left.
        """
        forms = {normalise(text) for text in taken}
        table = Corpus(self.folder).queries
        table = table[~table["text"].map(normalise).isin(forms)]
        rows_K = passages.rows_of(list(table["taken_from"]))
        assert (rows_K >= 0).all(), "the passages are the same"
        layout, _ = divisible(passages, (), settings)
        split_A = split_articles(layout.articles, settings)
        split_K = split_A[layout.article_P[rows_K]]
        kept_K = sampled(split_K, replace(settings, max_pair_queries=None))
        if not (split_K[kept_K] == SPLITS.index("train")).any():
            raise InputError(
                f"{self.folder} has no train question; generate questions about more passages, or lower "
                "heldout_dev_articles and heldout_test_articles"
            )
        queries = [
            PairQuery(id, text, SPLITS[split], GENERATED, passage, passage)
            for id, text, passage, split in zip(
                *(table[name][kept_K] for name in ("query_id", "text", "taken_from")), split_K[kept_K].tolist()
            )
        ]
        articles = {split: int((split_A == number).sum()) for number, split in enumerate(SPLITS)}
        return PairQueries(queries, (GENERATED,), articles, verbatim=False)


class AddedTrainQueries:
    """A folder with queries.jsonl and qrels/train.tsv. Raises `InputError` if one of them is missing."""

    def __init__(self, folder: Path) -> None:
        self.files = labels_in(PLACE, folder, "train")

    def join(
        self, corpus: CleanCorpus, held_out_P: NDArray[np.bool_] | None = None
    ) -> tuple[list[PairQuery], Counter[str]]:
        """Adds the queries and their relevant passages to `corpus`, after its splits are drawn.

        Returns the new queries, one row each, and the number of rows left out for each reason. `held_out_P` marks the
        passages that no added query may ask about. A query with the text of a train query adds its passages to it.
        """
        texts, pairs, out = self._read(corpus)
        by_text = {normalise(query.text): id for id, query in corpus.queries.items()}
        known = {(row.query_id, row.passage_id) for row, _ in corpus.qrels}
        rows_K = corpus.passages.rows_of([passage for _, passage in pairs]).tolist()
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
            elif held_out_P is not None and held_out_P[row]:
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
        """Query texts by id, (query id, passage id) pairs of relevant passages, and counts of left-out rows."""
        texts: dict[str, str] = {}
        pairs: list[tuple[str, str]] = []
        out: Counter[str] = Counter()
        before = len(corpus.rejected)
        for row in read_labels(self.files):
            if isinstance(row, Rejected):
                reject(corpus, row.kind, row.id, row.reason, f"{PLACE}/{row.where}", row.content)
            elif isinstance(row, Query):
                reason = id_fault(row.id) or ("" if is_unicode(row.text) else "not valid Unicode")
                if reason:
                    reject(corpus, "query", row.id, reason, f"{PLACE}/{row.where}", row.text)
                else:
                    texts.setdefault(row.id, row.text)
            elif (relevance := relevance_of(row)) is None:
                reject_qrel(corpus, row._replace(where=f"{PLACE}/{row.where}"), NO_WHOLE_NUMBER)
            elif relevance <= 0:
                out["qrel: not relevant"] += 1
            else:
                pairs.append((row.query_id, row.passage_id))
        if not pairs and len(corpus.rejected) > before:
            first = corpus.rejected[before]
            raise InputError(
                f"train_queries: no label could be read, as {first.where}: {first.reason}; correct the rows"
            )
        return texts, pairs, out
