"""A Markdown file as an article, parsed by pulldown-cmark: CommonMark with GitHub's tables, footnotes and the like.

A paragraph is a passage, even in a quotation, a list item or a footnote. A list without blank lines between its items
is one passage with one line per item, and a table is one passage with one line per row and ` | ` between cells. A block
of code, without its blank lines, is one passage, and so is the text of a block of HTML, without its tags. A paragraph
keeps only its words: emphasis, links, images, code and HTML lose their marks. Comments and tables of contents are left
out.
"""

import html
import re
from collections.abc import Iterator
from typing import Any

import pyromark

from stillhouse.corpus.sources.article import Block, only_links_to_sections
from stillhouse.corpus.sources.rows import CODE, TABLE

_OPTIONS = (
    pyromark.Options.ENABLE_TABLES
    | pyromark.Options.ENABLE_FOOTNOTES
    | pyromark.Options.ENABLE_STRIKETHROUGH
    | pyromark.Options.ENABLE_TASKLISTS
    | pyromark.Options.ENABLE_GFM
)
CELL = " | "
"""The separator between two cells of a row."""

_CONTAINERS = ("BlockQuote", "FootnoteDefinition", "Item", "List")
_LEAVES = ("CodeBlock", "Heading", "HtmlBlock", "Paragraph", "Table")

_UNSEEN = re.compile(
    r"<!--(?:-?>|.*?(?:-->|\Z))|<\?.*?(?:\?>|\Z)|<(script|style)\b.*?(?:</\1\s*>|\Z)", re.DOTALL | re.IGNORECASE
)
_TAG = re.compile(r"<(?:/?([a-zA-Z][a-zA-Z0-9-]*+)|!)(?:\"[^\"]*+\"|'[^']*+'|[^<>\"'])*+>")
_LINE_BREAK = re.compile(r"<br\b", re.IGNORECASE)
_CELLS = re.compile(r"<(?:table|tr|td|th)\b", re.IGNORECASE)
_PRE = re.compile(r"<pre\b", re.IGNORECASE)
_PHRASES = frozenset(
    "a abbr b bdi bdo big cite code data del dfn em font i img ins kbd mark q s samp small span strike strong sub sup "  # noqa: SIM905
    "tt u var wbr".split()
)
"""Elements that may begin and end within a word."""


def markdown_blocks(text: str) -> Iterator[Block]:
    """The headings and passages of a text with line feeds as line ends; a heading in a container is a passage."""
    reading = _Reading(text)
    # Every event is a name, or a name with a value, and so is a tag.
    events: Iterator[tuple[Any, Any]] = pyromark.events_with_range(text, options=_OPTIONS, merge_text=True)
    for event, place in events:
        name, value = (event, "") if isinstance(event, str) else next(iter(event.items()))
        if name in ("Text", "Code", "Html"):
            reading.say(value, place)
        elif name in ("SoftBreak", "HardBreak"):
            reading.say(" ", place)
        elif name == "InlineHtml":
            reading.say(" " if _LINE_BREAK.match(value) else "", place)
            reading.has_tags = True
        elif name == "Rule":
            reading.end_item()
        elif name in ("Start", "End"):
            tag, about = (value, "") if isinstance(value, str) else next(iter(value.items()))
            yield from reading.begin(tag, about, place) if name == "Start" else reading.end(tag)


class _Reading:
    """The block that is being read, and the items of the list before it, which are a line each."""

    def __init__(self, text: str) -> None:
        self._data = text.encode()
        self._ends, self._counted = 0, 0  # line ends before a byte
        self._depth = self._lists = 0  # containers and lists that are open
        self._block = Block(0, 0, "")
        self._words: list[str] = []
        self._outside: list[str] = []  # words that are not in a link to a section
        self._in_links: list[bool] = []  # of each link that is open, whether to a section
        self._cells: list[str] = []
        self._rows: list[str] = []
        self._list = Block(0, 0, "")
        self._items: list[str] = []
        self.has_tags = False

    def say(self, words: str, place: dict[str, int]) -> None:
        if not self._block.line:  # in an item, without a paragraph
            self._block.line = self._line_at(place)
        self._words.append(words)
        if not any(self._in_links):
            self._outside.append(words)

    def begin(self, tag: str, about: Any, place: dict[str, int]) -> Iterator[Block]:
        if tag in _LEAVES:
            self.end_item()
            yield from self._end_list()
            level = int(about["level"][1:]) if tag == "Heading" and not self._depth else 0
            self._block = Block(self._line_at(place), level, "")
        elif tag in _CONTAINERS:
            self.end_item()
            self._depth += 1
            self._lists += tag == "List"
        elif tag in ("Link", "Image"):
            self.say("", place)
            self._in_links.append("#" in about["dest_url"])
            if about["link_type"] != "Email":
                self._block.targets.append(about["dest_url"])

    def end(self, tag: str) -> Iterator[Block]:
        if tag == "TableCell":
            self._cells.append(self._taken_words())
        elif tag in ("Link", "Image"):
            self._in_links.pop()
        elif tag in ("TableHead", "TableRow"):
            self._rows += [CELL.join(self._cells).strip()] if any(self._cells) else []
            self._cells.clear()
        elif tag in _LEAVES:
            yield self._end_leaf(tag)
        elif tag in _CONTAINERS:
            self.end_item()
            self._depth -= 1
            self._lists -= tag == "List"
            if not self._lists:
                yield from self._end_list()

    def _end_leaf(self, tag: str) -> Block:
        block, self._block = self._block, Block(0, 0, "")
        if tag == "Table":
            block.text, block.kind = "\n".join(self._rows), TABLE
            self._rows.clear()
        elif tag == "CodeBlock":
            block.text, block.kind = _without_blank_lines("".join(self._words)), CODE
        elif tag == "HtmlBlock":
            block.text, block.kind = _words_of_html("".join(self._words))
        else:
            block.text = self._taken_words() if tag == "Heading" else self._taken_prose()
        self._words.clear()
        self._outside.clear()
        return block

    def end_item(self) -> None:
        """Turns text outside a paragraph into a line of the list."""
        if not self._block.line:
            return
        self._list.line = self._list.line or self._block.line
        self._list.targets += self._block.targets
        if item := self._taken_prose():
            self._items.append(item)
        self._block = Block(0, 0, "")

    def _end_list(self) -> Iterator[Block]:
        if self._list.line:
            self._list.text = "\n".join(self._items)
            yield self._list
            self._list, self._items = Block(0, 0, ""), []

    def _taken_prose(self) -> str:
        outside, words = "".join(self._outside), self._taken_words()
        self._outside.clear()
        return "" if only_links_to_sections(words, outside) else words

    def _taken_words(self) -> str:
        words = "".join(self._words)
        self._words.clear()
        if self.has_tags:  # a removed tag leaves the spaces on both of its sides
            words, self.has_tags = re.sub(r"[ \t]+", " ", words), False
        return words.strip()

    def _line_at(self, place: dict[str, int]) -> int:
        self._ends += self._data.count(b"\n", self._counted, place["start"])
        self._counted = place["start"]
        return self._ends + 1


def _without_blank_lines(code: str) -> str:
    return "\n".join(line.rstrip() for line in code.split("\n") if line.strip())


def _words_of_html(content: str) -> tuple[str, str]:
    """The text of a block of HTML, and its kind of passage: tables and code are recognised by their elements."""
    content = _UNSEEN.sub(" ", content)
    kind = TABLE if _CELLS.search(content) else CODE if _PRE.search(content) else ""
    words = html.unescape(_TAG.sub(lambda tag: "" if (tag[1] or "").lower() in _PHRASES else " ", content))
    return (_without_blank_lines(words) if kind == CODE else " ".join(words.split())), kind
