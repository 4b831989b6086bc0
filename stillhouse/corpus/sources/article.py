"""An article as its reader found it, and its rows. The same for every kind of file."""

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from stillhouse.corpus.sources.rows import Link, NotProse, Passage, Rejected, Row, Value
from stillhouse.corpus.words import estimated_tokens

JOINED = 100
"""Tokens, as `estimated_tokens` counts them. With a title, they fit into the 128 that `new` sets for long texts."""


@dataclass(slots=True)
class Block:
    """A heading (`level` from 1) or a passage (`level` 0), the line it begins on and the targets of its links.

    `kind` is a kind of `NotProse`, or "" for prose. A block without words is not a passage, but its links count. `page`
    counts from 1, and is 0 in a file without pages.
    """

    line: int
    level: int
    text: str
    targets: list[str] = field(default_factory=list)
    kind: str = ""
    page: int = 0


def only_links_to_sections(text: str, outside: str) -> bool:
    """Whether a text is a table of contents, given its words `outside` links to sections: only numbers and marks.

    It is not a passage. It repeats a question that is a heading, and so would rank before the section that answers it.
    """
    return any(map(str.isalpha, text)) and not any(map(str.isalpha, outside))


@dataclass(frozen=True)
class Article:
    """An article file of a tree: its name in messages, its path below the tree, and its id.

    Links lead to files that end in one of `suffixes`. `labelled` are passages that qrels name.
    """

    path: Path
    name: str
    relative: str
    id: str
    suffixes: tuple[str, ...]
    labelled: Set[str] = frozenset()

    def rows(
        self, blocks: Iterable[Block], named: str, title: str = "", fields: Mapping[str, Value] | None = None
    ) -> Iterator[Row]:
        """The passages, each with these fields, and the links to paths below the tree.

        Consecutive paragraphs of one section, page and kind are one passage if they have at most `JOINED` tokens: a
        short one says little alone. The passage's id has the number of its first paragraph. A paragraph that qrels name
        begins a passage. Models read the heading of a section with the title, which is `title`, else the first heading
        of level 1, else `named`. The heading with the title does not start a section.
        """
        blocks = list(blocks)
        head = next((block for block in blocks if block.level == 1 and block.text), None)
        if title and head and head.text != title:
            head = None
        title = title or (head.text if head else named)
        position = 0
        for section, parts in self._joined(blocks, head):
            where, page, kind = f"{self.name}:{parts[0].line}", parts[0].page, parts[0].kind
            id, known = f"{self.id}#{position + 1}", {**(fields or {}), "page": page} if page else fields
            text, names = "\n\n".join(block.text for block in parts), dict.fromkeys(filter(None, (title, section)))
            yield Passage(id, ": ".join(names), text, self.id, section, position, where, known)
            if kind:
                yield NotProse(id, kind, where)
            position += len(parts)
        for block in blocks:
            for target in block.targets:
                link = link_target(target, self.relative, self.suffixes)
                if link is not None:
                    yield Link(self.id, link, f"{self.name}:{block.line}")
        if position == 0:
            yield self.rejected("article without a paragraph", title)

    def _joined(self, blocks: Iterable[Block], head: Block | None) -> Iterator[tuple[str, list[Block]]]:
        """The paragraphs of each passage, with their section."""
        section, tokens, number = "", 0, 0
        parts: list[Block] = []
        for block in blocks:
            if block is head or not (block.level or block.text):
                continue
            own = estimated_tokens(block.text)
            number += not block.level
            apart = block.level or tokens + own > JOINED or f"{self.id}#{number}" in self.labelled
            if parts and (apart or (block.page, block.kind) != (parts[0].page, parts[0].kind)):
                yield section, parts
                parts, tokens = [], 0
            if block.level:
                section = block.text
            else:
                parts.append(block)
                tokens += own
        if parts:
            yield section, parts

    def rejected(self, reason: str, content: str = "") -> Rejected:
        """The article as a rejected row."""
        return Rejected("passage", self.id, reason, f"{self.name}:1", content)


def link_target(target: str, relative: str, suffixes: tuple[str, ...]) -> str | None:
    """The path below the tree that a link of the article at `relative` points to; None if it is not an article link."""
    path = unquote(target.split("#")[0].split("?")[0])
    if "://" in path or not path.lower().endswith(suffixes):
        return None
    base = "" if path.startswith("/") else posixpath.dirname(relative)
    return posixpath.normpath(posixpath.join(base, path.lstrip("/")))
