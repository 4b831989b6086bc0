"""A quick look at a source: its numbers of passages and articles, the lengths, and the questions in each split."""

import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np

from stillhouse.corpus.cleaning import clean
from stillhouse.corpus.ingestion import refuse_lost
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.rows import Passage, Qrel, Query, Row
from stillhouse.corpus.titles import passage_text
from stillhouse.corpus.words import estimated_tokens

PASSAGES_KEPT = 500
"""The size of the random sample of passages that is measured."""
ARTICLES_COUNTED = 2_000
"""The articles of at most this many passages are counted."""
SECONDS = 9.0


@dataclass(frozen=True)
class FirstLook:
    """The format, the number of passages, the tokens of each in a sample, and the judged questions by split.

    `whole` is False if time ran out before the end of the source; the numbers then cover the part that was read. The
    labels may be `known` nevertheless. `unjudged` counts the questions without labels of a source that was read whole.
    `notes` are those of `Source` and, if it was read whole, the reasons why rows were rejected.
    `articles` counts those of the first passages; 0 if they were not counted. `texts` are the passages of the sample as
    models read them. `lengths` include special tokens, and are estimates unless a tokenizer `counted` them.
    """

    format: str
    passages: int
    lengths: tuple[int, ...]
    questions: Mapping[str, int]
    whole: bool
    articles: int = 0
    texts: tuple[str, ...] = ()
    counted: bool = False
    unjudged: int = 0
    known: bool = True
    notes: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """The 95th percentile of the measured passages' tokens; 0 without passages."""
        return int(np.quantile(self.lengths, 0.95)) if self.lengths else 0

    @property
    def all_articles(self) -> float:
        """The approximate number of articles of the passages that were read."""
        return self.articles * self.passages / max(1, min(self.passages, ARTICLES_COUNTED))

    @property
    def labelled(self) -> bool:
        """Whether there are training questions. If not all labels were read, any is taken for a sign of them."""
        return bool(self.questions.get("train") or (self.questions and not self.known))


def look_at(source: str, seconds: float = SECONDS) -> FirstLook:
    """Reads a source's labels, which are its last parts, and then passages for at most `seconds`.

    Raises `InputError` for a source that cannot be opened, or that is read to its end and has no passages or has lost
    its labels (`refuse_lost`).
    """
    opened = open_source(source)
    parts, end = list(opened.parts(sys.maxsize, map))[::-1], time.monotonic() + seconds
    known = len(parts) > 1  # else labels and passages may take turns
    texts: list[str] = []
    chance = random.Random(0)
    judged: dict[str, set[str]] = defaultdict(set)
    articles, passages, whole = set[str](), 0, True

    def rows() -> Iterator[Row]:
        """The rows until time runs out; of a passage, only whether there is text, and whether it is another's."""
        nonlocal passages, whole, end
        for row in chain.from_iterable(map(part.finish, part.read()) for part in parts):
            if isinstance(row, Passage):
                passages += 1
                # Reservoir sampling: after any number of passages, each of them was kept with the same probability.
                place = len(texts) if len(texts) < PASSAGES_KEPT else chance.randrange(passages)
                if place < PASSAGES_KEPT:
                    texts[place : place + 1] = [passage_text(row.title, row.text)]
                if passages <= ARTICLES_COUNTED:
                    articles.add(row.article_id)
                row = row._replace(title="", section="", text=f"{hash((row.title, row.text))}" * bool(row.text.strip()))
            elif isinstance(row, Qrel):
                judged[row.split].add(row.query_id)
            yield row
            if known and isinstance(row, Query | Qrel):
                end = time.monotonic() + seconds
            elif time.monotonic() > end:
                whole = False
                return

    corpus = clean(rows())
    if whole:
        refuse_lost(corpus)
        passages, questions = len(corpus.passages), dict(Counter(corpus.split_of.values()))
    else:
        questions = {split: len(queries) for split, queries in judged.items()}
    lengths = tuple(map(estimated_tokens, texts))
    unjudged, known = len(corpus.unjudged) if whole else 0, known or whole
    found = (opened.format, passages, lengths, questions, whole, len(articles), tuple(texts))
    notes = (*opened.notes, *(f"rejected {count:,} × {reason}" for reason, count in corpus.reasons().items()))
    return FirstLook(*found, unjudged=unjudged, known=known, notes=notes if whole else opened.notes)
