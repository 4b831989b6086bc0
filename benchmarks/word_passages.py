"""Any number of passages of random words, written as JSON lines, with repeats at known places.

A corpus of one size has the same passages on every machine. Ids and texts are repeated on purpose, near and far apart,
so that a step's results can be compared with the input.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

VOCABULARY, MEAN_WORDS, SEED = 50_000, 56, 1
BLOCK = 20_000
TEXT_EVERY, IDS_A_BLOCK = 200, 20
"""Of a block, every n-th passage has the text of the block's first; and that many of its rows repeat an early id."""


def counts(passages: int) -> tuple[int, int]:
    """How many rows of a corpus of this many passages have an id that is taken, and how many a repeated text."""
    blocks = [min(BLOCK, passages - begin) for begin in range(0, passages, BLOCK)]
    ids = sum(min(IDS_A_BLOCK, passages) for _ in blocks)
    return ids, sum((size - 1) // TEXT_EVERY for size in blocks)


def word_blocks(passages: int, mean_words: int = MEAN_WORDS) -> Iterator[tuple[int, list[str]]]:
    """The first row of a block and its texts, of words whose frequencies fall as in English."""
    rng = np.random.default_rng(SEED)
    letters = np.array(list("etaoinshrdlu"))
    words = np.array(["".join(rng.choice(letters, 2 + number % 9)) for number in range(VOCABULARY)], dtype=object)
    chances = 1 / np.arange(10, VOCABULARY + 10)
    edges = np.cumsum(chances / chances.sum())
    edges[-1] = 1
    for begin in range(0, passages, BLOCK):
        lengths = rng.integers(max(1, mean_words // 2), mean_words * 3 // 2 + 1, min(BLOCK, passages - begin))
        drawn = words[np.searchsorted(edges, rng.random(int(lengths.sum())), side="right")].tolist()
        ends = np.cumsum(lengths).tolist()
        # Every text names its row, so that none is another's by chance.
        texts = [
            f"{' '.join(drawn[start:end])} {begin + place}." for place, (start, end) in enumerate(zip([0, *ends], ends))
        ]
        texts[::TEXT_EVERY] = [texts[0]] * len(texts[::TEXT_EVERY])
        yield begin, texts


def write_jsonl(path: Path, passages: int, mean_words: int = MEAN_WORDS) -> None:
    """`passages` taken ones, and after each block rows with the ids of the first passages and another text."""
    again = "".join(_line(row, "another text under an id that is taken") for row in range(min(IDS_A_BLOCK, passages)))
    with path.open("w", encoding="utf-8") as file:
        for begin, texts in word_blocks(passages, mean_words):
            file.write("".join([_line(begin + place, text) for place, text in enumerate(texts)]) + again)


def _line(row: int, text: str) -> str:
    return f'{{"id": "p{row}", "text": {json.dumps(text)}}}\n'
