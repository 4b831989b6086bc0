"""Splits a passage into sentences with `sentencex`, the Wikimedia segmenter for about 300 languages."""

from __future__ import annotations

import re
from itertools import pairwise

import sentencex

# The library panics on multi-byte white space (such as a no-break space) next to an initial.
WHITE_SPACE = re.compile(r"[^\S\n]")
# Thai and Lao put a space and no mark after a sentence; the library does not know the mark of Khmer.
_ENDS = re.compile("(?<=[\u0e00-\u0eff]) +(?=[\u0e00-\u0eff])|(?<=[\u17d4\u17d5])")


def sentence_spans(text: str, language: str = "en") -> list[tuple[int, int]]:
    """The [begin, end) character spans of the sentences of `text`, in order, without surrounding white space.

    `language` is an ISO 639-1 code; for an unknown language, the library uses its nearest relative. An empty text has
    no sentences.
    """
    spans = []
    begin = 0
    for segment in sentencex.segment(language, WHITE_SPACE.sub(" ", text)):
        ends = [0, *(end.start() for end in _ENDS.finditer(segment)), len(segment)]
        for first, last in pairwise(ends):
            part = segment[first:last]
            if stripped := part.strip():
                start = begin + first + part.index(stripped)
                spans.append((start, start + len(stripped)))
        begin += len(segment)
    assert begin == len(text), "the segments together are the text"
    return spans
