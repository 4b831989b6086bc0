"""Splits long passages of a source into pieces that a model reads whole.

A piece of the passage `d` is the passage `d#k`, counted from 1. It keeps the passage's article, position, title and
fields, and its fields `begin` and `end` say which characters of the text it is.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import accumulate, pairwise

from semantic_text_splitter import TextSplitter

from stillhouse.corpus.sources.markdown_article import markdown_blocks
from stillhouse.corpus.sources.rows import Each, Part, Passage, Row, Source
from stillhouse.corpus.sources.text_encoding import is_unicode
from stillhouse.corpus.titles import SEP, SPACE, passage_text, read_title
from stillhouse.corpus.words import estimated_tokens

SENTENCE, PARAGRAPH, HEADING = BY = ("sentence", "paragraph", "heading")


@dataclasses.dataclass(frozen=True)
class Splitting:
    """How long passages are split: into pieces of at most `tokens` tokens with their title and special tokens, of which
    at most `overlap` repeat the end of the piece before.

    `by` is one of `BY`: pieces are filled with whole sentences; or with whole paragraphs, where these are short enough;
    or the same within each section below a Markdown heading. `count` gives the tokens of a text as `passage_text` makes
    it, special tokens included; other processes call it too.
    """

    tokens: int
    overlap: int = 0
    by: str = PARAGRAPH
    titles: str = SPACE
    count: Callable[[str], int] = estimated_tokens

    def pieces(self, passage: Passage) -> list[Passage]:
        """The passage itself if it is short enough, else its pieces."""
        if not is_unicode(passage.title + passage.text):  # will be rejected
            return [passage]
        most = self.tokens - (self.titles == SEP)
        if self.count(passage_text(passage.title, passage.text, self.titles)) <= most:
            return [passage]
        room = max(most - self.count(read_title(passage.title, self.titles)), most // 2)
        return [
            passage._replace(
                id=f"{passage.id}#{number}",
                text=passage.text[begin:end],
                article_id=passage.article_id or passage.id,
                section=section or passage.section,
                fields={**(passage.fields or {}), "begin": begin, "end": end},
            )
            for number, (begin, end, section) in enumerate(self._spans(passage.text, room), 1)
        ]

    def _spans(self, text: str, room: int) -> Iterator[tuple[int, int, str]]:
        """The [begin, end) characters of each piece, with its section."""
        special = self.count("")
        splitter = TextSplitter.from_callback(
            lambda part: self.count(part) - special, room, overlap=min(self.overlap, room - 1)
        )
        for first, last, section in _sections(text) if self.by == HEADING else [(0, len(text), "")]:
            part = text[first:last]
            # The splitter prefers line breaks to the ends of sentences.
            part = part.replace("\n", " ") if self.by == SENTENCE else part
            for begin, piece in splitter.chunk_indices(part):
                yield first + begin, first + begin + len(piece), section


def _sections(text: str) -> Iterator[tuple[int, int, str]]:
    """The [begin, end) characters of each section of a Markdown text, from its heading on, with the heading."""
    starts = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
    heads = [(starts[block.line - 1], block.text) for block in markdown_blocks(text) if block.level]
    for (begin, heading), (end, _) in pairwise([(0, ""), *heads, (len(text), "")]):
        if text[begin:end].strip():
            yield begin, end, heading


def with_pieces(source: Source, splitting: Splitting) -> Source:
    """The source with its long passages split."""

    def parts(size: int, each: Each) -> list[Part]:
        return [Part(partial(_split, part.read, splitting), part.finish) for part in source.parts(size, each)]

    return dataclasses.replace(source, parts=parts)


def _split(read: Callable[[], Iterable[Row]], splitting: Splitting) -> Iterator[Row]:
    for row in read():
        yield from splitting.pieces(row) if isinstance(row, Passage) else (row,)
