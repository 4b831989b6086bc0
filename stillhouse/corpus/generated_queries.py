"""Adds the questions of `generate-queries` to a corpus of the same passages.

They are split like pair queries: train, dev and test share no article. If the source has labelled train queries, the
questions are added to these, and no metric is computed on them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from stillhouse.core.artifacts import digest_file, read_manifest
from stillhouse.core.errors import InputError
from stillhouse.corpus.article_layout import lay_out
from stillhouse.corpus.cleaning import normalise
from stillhouse.corpus.ingest_settings import IngestSettings
from stillhouse.corpus.pair_queries import PairQueries, PairQuery, sampled, split_articles
from stillhouse.corpus.schemas import GENERATED, SPLITS
from stillhouse.corpus.store import Corpus
from stillhouse.corpus.taken_passages import TakenPassages


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
        layout = lay_out(passages.column("article_id"), passages.column("section"), passages.column("position"), ())
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
