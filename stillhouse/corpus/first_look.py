"""A quick look at a source: its numbers of passages and articles, the lengths, and the questions in each split."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.rows import Passage, Qrel

PASSAGES_MEASURED = 2_000
ROWS_AT_ONCE = 1_000
SECONDS = 9.0


@dataclass(frozen=True)
class FirstLook:
    """The format, the number of passages, the words in each of the first ones, and the judged questions by split.

    `whole` is False if time ran out before the end of the source; the numbers then cover the part that was read.
    `articles` counts those of the first passages; 0 if they were not counted.
    """

    format: str
    passages: int
    lengths: tuple[int, ...]
    questions: Mapping[str, int]
    whole: bool
    articles: int = 0

    @property
    def words(self) -> int:
        """The 95th percentile of the measured passages' words; 0 without passages."""
        return int(np.quantile(self.lengths, 0.95)) if self.lengths else 0

    @property
    def labelled(self) -> bool:
        """Whether there are training questions. If time ran out, any judged question counts as a sign of them."""
        return bool(self.questions.get("train") or (self.questions and not self.whole))


def look_at(source: str, seconds: float = SECONDS) -> FirstLook:
    """Reads a source for at most `seconds`.

    Raises `InputError` for a source that cannot be opened.
    """
    opened, started = open_source(source), time.monotonic()
    lengths: list[int] = []
    judged: dict[str, set[str]] = defaultdict(set)
    articles: set[str] = set()
    passages, whole = 0, True
    for number, row in enumerate(opened.rows()):
        if isinstance(row, Passage):
            passages += 1
            if len(lengths) < PASSAGES_MEASURED:
                lengths.append(len(row.title.split()) + len(row.text.split()))
                articles.add(row.article_id)
        elif isinstance(row, Qrel):
            judged[row.split].add(row.query_id)
        if number % ROWS_AT_ONCE == 0 and time.monotonic() - started > seconds:
            whole = False
            break
    questions = {split: len(queries) for split, queries in judged.items()}
    return FirstLook(opened.format, passages, tuple(lengths), questions, whole, len(articles))
