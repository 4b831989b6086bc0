"""Splits a passage into sentences with `sentencex`, the Wikimedia segmenter for about 300 languages."""

from __future__ import annotations

import re

import sentencex

# The library panics on multi-byte white space (such as a no-break space) next to an initial.
WHITE_SPACE = re.compile(r"[^\S\n]")


def sentence_spans(text: str, language: str = "en") -> list[tuple[int, int]]:
    """The [begin, end) character spans of the sentences of `text`, in order, without surrounding white space.

    `language` is an ISO 639-1 code; for an unknown language, the library uses its nearest relative. An empty text has
    no sentences.
    """
    spans = []
    begin = 0
    for segment in sentencex.segment(language, WHITE_SPACE.sub(" ", text)):
        end = begin + len(segment)
        if stripped := segment.strip():
            first = begin + segment.index(stripped)
            spans.append((first, first + len(stripped)))
        begin = end
    assert begin == len(text), "the segments together are the text"
    return spans
