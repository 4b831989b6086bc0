"""A short look at a source: how long its passages are and whether it has training questions."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.rows import Passage, Qrel

PASSAGES_MEASURED = 2_000
ROWS_AT_ONCE = 10_000
SECONDS = 20.0


@dataclass(frozen=True)
class FirstLook:
    """What was seen: the format, how many passages, and the words that 95 % of the measured ones have at most.

    `labelled` says whether there is a judged training question. `whole` is False where the look ended before the
    source did; then `passages` is what was read, and a source without a training question so far counts as labelled
    when it has judged questions of any split.
    """

    format: str
    passages: int
    words: int
    labelled: bool
    whole: bool


def look_at(source: str, seconds: float = SECONDS) -> FirstLook:
    """Reads a source until it has seen a training question, its end, or for so many seconds.

    Raises `InputError` for a source that cannot be opened.
    """
    opened, started = open_source(source), time.monotonic()
    lengths: list[int] = []
    passages, judged, labelled, whole = 0, False, False, True
    for number, row in enumerate(opened.rows()):
        if isinstance(row, Passage):
            passages += 1
            if len(lengths) < PASSAGES_MEASURED:
                lengths.append(len(row.title.split()) + len(row.text.split()))
        elif isinstance(row, Qrel):
            judged, labelled = True, row.split == "train"
        if labelled or (number % ROWS_AT_ONCE == 0 and time.monotonic() - started > seconds):
            whole = False
            break
    words = int(np.quantile(lengths, 0.95)) if lengths else 0
    return FirstLook(opened.format, passages, words, labelled or (judged and not whole), whole)
