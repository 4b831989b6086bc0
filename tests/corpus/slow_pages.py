"""Reads the rows of HTML pages slowly, by a strict grammar of markup that every parser reads alike.

Parsers repair any other markup in different ways, so it raises `Unclear`; `page_fault` of `slow_trees` then checks what
was read.
"""

from __future__ import annotations

import html
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from slow_words import Unclear

Row = tuple[Any, ...]

HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
PHRASES = ("a", "b", "code", "em", "i", "span", "strong")
OF_PHRASES = (*HEADINGS, "p", "pre")
"""Blocks that contain only phrases."""
BLOCKS = (*OF_PHRASES, "blockquote", "div", "li", "ol", "section", "table", "td", "th", "tr", "ul")
CELLS = ("td", "th")
UNSEEN_PHRASES, UNSEEN_BLOCKS = ("button",), ("aside", "footer", "nav")
RAW = ("script", "style", "title")
WITHIN = {"tr": ("table",), "td": ("tr",), "th": ("tr",)}
ONLY = {"table": ("tr",), "tr": CELLS}

ATTRIBUTE = r"""[ \t\n]+([a-z]+(?:-[a-z]+)?)(?:="([^"<>&]*)"|='([^'<>&]*)'|=([\w./:%#?-]+))?"""
TOKEN = re.compile(
    rf"<!--(?P<comment>(?:(?!-|<|>).)*)-->|<(?P<end>/?)(?P<tag>[a-z][a-z0-9]*)(?P<attributes>(?:{ATTRIBUTE})*)>"
    r"|&(?:(?:amp|lt|gt|quot|nbsp|mdash);|#(?P<number>[0-9]{2,6});)|(?P<letter>[^<&\r])",
    re.DOTALL,
)


def page_rows(name: str, data: bytes, ids: Mapping[str, str]) -> list[Row]:
    """Return the rows of the page at the path `name`; `ids` maps the paths of all pages to ids. Raises `Unclear`."""
    titles, blocks = _Page(_text(data)).blocks()
    heads = [number for number, (level, *_) in enumerate(blocks) if level == 1]
    named = " ".join(titles[0].split()) if titles else ""
    title = blocks[heads[0]][1] if heads else named or posixpath.basename(ids[name])
    rows: list[Row] = []
    section, position = "", 0
    for number, (level, text, targets) in enumerate(blocks):
        if not level:
            rows.append(("passage", f"{ids[name]}#{position + 1}", title, text, ids[name], section, position))
            position += 1
        elif number not in heads[:1]:
            section = text
        rows += [("link", ids[name], ids.get(path, path)) for path in _reached(name, targets)]
    return rows if position else [*rows, ("rejected",)]


def _text(data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise Unclear from None
    if re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ufdd0-\ufdef\ufeff\ufffe\uffff]", text):
        raise Unclear
    return text


def _reached(name: str, targets: list[str]) -> Iterator[str]:
    for target in targets:
        path = target.split("#")[0].split("?")[0].strip()
        path = unquote(f"{path}index.html" if path.endswith("/") else path)
        if "://" not in path and path.lower().endswith((".html", ".htm", ".xhtml")):
            base = "" if path.startswith("/") else posixpath.dirname(name)
            yield posixpath.normpath(posixpath.join(base, path.lstrip("/")))


class _Page:
    """One reading of a page: the elements that are open, and the block that is being read."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.open: list[str] = []
        self.unseen = 0  # how many open elements are left out, or are inside one that is
        self.titles: list[str] = []
        self.done: list[tuple[int, str, list[str]]] = []
        self.words, self.targets = "", list[str]()

    def blocks(self) -> tuple[list[str], list[tuple[int, str, list[str]]]]:
        """Return the titles, and the level (0 for a paragraph), text and link targets of every block."""
        while self.at < len(self.text):
            token = TOKEN.match(self.text, self.at)
            if token is None:
                raise Unclear
            self.at = token.end()
            if token["tag"]:
                self._end(token["tag"]) if token["end"] else self._begin(token["tag"], token["attributes"])
                if token["end"] and token["attributes"]:
                    raise Unclear
            elif token["comment"] is None:
                self._say(html.unescape(token[0]), int(token["number"] or 65))
        if self.unseen or (self.open and self.open[-1] not in ("p", "li", "div")):
            raise Unclear
        self._end_block()
        return self.titles, self.done

    def _say(self, letter: str, number: int) -> None:
        if number < 32 or 127 <= number < 160 or 0xD800 <= number < 0xE000 or number > 0xFDCF:
            raise Unclear
        if self.open and self.open[-1] in ONLY and not letter.isspace():
            raise Unclear
        if not self.unseen:
            self.words += letter

    def _begin(self, tag: str, attributes: str) -> None:
        found = [(name, a or b or c) for name, a, b, c in re.findall(ATTRIBUTE, attributes)]
        values = dict(found)
        if len(values) < len(found) or not values.keys() <= {"href", "hidden", "class", "id", "aria-hidden"}:
            raise Unclear
        if tag in RAW:
            self._raw(tag)
            return
        if tag in (*BLOCKS, *UNSEEN_BLOCKS):
            if self.open[-1:] == ["p"]:
                self._end("p")
            if any(each in (*OF_PHRASES, *PHRASES, *UNSEEN_PHRASES) for each in self.open):
                raise Unclear
            if tag not in CELLS:
                self._end_block()
        elif tag not in (*PHRASES, *UNSEEN_PHRASES, "br") or (tag == "a" and "a" in self.open):
            raise Unclear
        last = self.open[-1] if self.open else ""
        if last not in WITHIN.get(tag, (last,)) or tag not in ONLY.get(last, (tag,)) or (tag, last) == ("li", "li"):
            raise Unclear
        if tag == "br":
            self._say("\n", 65)
            return
        self.open.append(tag)
        hidden = "hidden" in values or values.get("aria-hidden") == "true"
        self.unseen += bool(self.unseen or hidden or tag in (*UNSEEN_BLOCKS, *UNSEEN_PHRASES))
        if not self.unseen:
            self.words += " " * (tag in CELLS)
            self.targets += [values["href"]] if tag == "a" and values.get("href") else []

    def _end(self, tag: str) -> None:
        if tag != "p" and self.open[-2:] == [tag, "p"]:
            self._end("p")
        if self.open[-1:] != [tag]:
            raise Unclear
        if tag in BLOCKS and tag not in CELLS and not self.unseen:
            self._end_block()
        self.unseen -= self.unseen > 0
        self.open.pop()

    def _raw(self, tag: str) -> None:
        """Skip an element that contains only characters: its content is not text of the page."""
        content, end, _ = self.text[self.at :].partition(f"</{tag}>")
        if not end or "<" in content or "&" in content or (self.open and tag == "title"):
            raise Unclear
        self.titles += [content] if tag == "title" else []
        self.at += len(content) + len(end)

    def _end_block(self) -> None:
        within = [tag for tag in self.open if tag in OF_PHRASES]
        level = HEADINGS.index(within[0]) + 1 if within and within[0] in HEADINGS else 0
        text = self.words.strip("\n").rstrip() if within == ["pre"] else " ".join(self.words.split())
        if level:
            text = text.rstrip("¶§#\uf0c1🔗 ")
        if text.strip():
            self.done.append((level, text, self.targets))
        self.words, self.targets = "", []
