"""Where sentences begin and end in a passage, by `sentencex`, the Wikimedia segmenter of some 300 languages."""

from __future__ import annotations

import re

import sentencex

# The library panics on white space of several bytes (a no-break space, say) beside an initial.
WHITE_SPACE = re.compile(r"[^\S\n]")


def sentence_spans(text: str, language: str = "en") -> list[tuple[int, int]]:
    """The [begin, end) character spans of the sentences of `text`, in order, without the white space around them.

    `language` is an ISO 639-1 code; the library splits a language that it does not know by that language's nearest
    relative. An empty text has no sentences.
    """
    spans = []
    begin = 0
    for segment in sentencex.segment(language, WHITE_SPACE.sub(" ", text)):
        end = begin + len(segment)
        if stripped := segment.strip():
            first = begin + segment.index(stripped)
            spans.append((first, first + len(stripped)))
        begin = end
    assert begin == len(text), "the segments, laid end to end, are the text"
    return spans
