"""A tree of Markdown or text files, one article each: headings are sections, each paragraph is a passage."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from stillhouse.corpus.sources.labels import find_labels, read_labels
from stillhouse.corpus.sources.lines import LONGEST, TOO_LONG, spaceless
from stillhouse.corpus.sources.rows import Link, Passage, Rejected, Row, Source
from stillhouse.errors import InputError

ARTICLE_TREE = "article-tree"
SUFFIXES = (".md", ".markdown", ".txt")

_HEADING = re.compile(r"(#{1,6})\s")
_FENCE = re.compile(r"\s*(```|~~~)")
_RULE = re.compile(r"\s*([-*_])(\s*\1){2,}\s*$")
# [text](target "title") and ![text](target); the text may not hold brackets, the target no space. Nothing is
# tried twice (++, *+): thousands of spaces in a link that does not end would take hours.
_INLINE_LINK = re.compile(r"!?\[([^\[\]]*+)\]\(\s*+<?([^()\s>]*+)>?(?:\s++\"[^\"]*+\")?\s*+\)")


ReadArticle = Callable[[Path, str, str, str, Mapping[str, str]], Iterator[Row]]
"""The rows of an article: its file, the file's name in messages, its path below the tree, its id, all ids by path."""


def open_article_tree(folder: Path) -> Source:
    """A folder of Markdown and text articles (`open_tree`)."""
    return open_tree(folder, ARTICLE_TREE, SUFFIXES, _read_article)


def open_tree(folder: Path, format: str, suffixes: tuple[str, ...], read: ReadArticle) -> Source:
    """A folder of articles, or one that holds them in `articles/`; `queries.jsonl` and `qrels/` lie in the folder.

    An article's id is its path below the tree without the suffix, white space percent-encoded; a passage's is
    `<article id>#<k>` for the k-th paragraph of the article, counted from 1.
    """
    root = folder / "articles" if (folder / "articles").is_dir() else folder
    paths = article_paths(root, suffixes)
    if not paths:
        raise InputError(f"{root} has no article: no file that ends in {', '.join(suffixes)}")
    labels = find_labels(folder)
    files = {path.relative_to(folder).as_posix(): path for path in paths}
    ids = {path.relative_to(root).as_posix(): article_id(path.relative_to(root)) for path in paths}

    def rows() -> Iterator[Row]:
        seen: set[str] = set()
        for (name, path), (relative, id) in zip(files.items(), ids.items()):
            if id in seen:
                yield Rejected("passage", id, "duplicate article id", f"{name}:1", "")
                continue
            seen.add(id)
            if path.stat().st_size > LONGEST:
                yield Rejected("passage", id, TOO_LONG, f"{name}:1", "")
                continue
            yield from read(path, name, relative, id, ids)
        yield from read_labels(labels)

    return Source(format, files | labels, rows)


def article_paths(root: Path, suffixes: tuple[str, ...] = SUFFIXES) -> list[Path]:
    """The article files below a folder in the order of their paths, without hidden files and folders."""
    found = (path for path in root.rglob("*") if path.suffix.lower() in suffixes and path.is_file())
    visible = (path for path in found if not any(part.startswith(".") for part in path.relative_to(root).parts))
    return sorted(visible, key=lambda path: path.relative_to(root).as_posix())


def article_id(relative: Path) -> str:
    """The id of an article by its path below the tree."""
    return spaceless(relative.with_suffix("").as_posix())


@dataclass
class _Block:
    """Lines that belong together: a heading (level above 0) or a paragraph."""

    line: int
    level: int = 0
    text: list[str] = field(default_factory=list)


def _read_article(path: Path, name: str, relative: str, id: str, ids: Mapping[str, str]) -> Iterator[Row]:
    blocks: list[_Block] = []
    yield from _blocks(path, name, blocks)
    title_block = next((block for block in blocks if block.level == 1), None)
    title = plain_text(title_block.text[0])[0] if title_block else path.stem
    section, position = "", 0
    for block in blocks:
        if block is title_block:
            continue
        text, targets = plain_text("\n".join(block.text) if block.level < 0 else " ".join(block.text))
        if block.level > 0:
            section = text
        else:
            yield Passage(f"{id}#{position + 1}", title, text, id, section, position, f"{name}:{block.line}")
            position += 1
        for target in targets:
            link = link_target(target, relative)
            if link is not None:
                # A target outside the tree keeps its path, so that cleaning can say what it pointed to.
                yield Link(id, ids.get(link, link), f"{name}:{block.line}")
    if position == 0:
        yield Rejected("passage", id, "article without a paragraph", f"{name}:1", title)


def _blocks(path: Path, name: str, blocks: list[_Block]) -> Iterator[Rejected]:
    """Fills `blocks` with the headings, paragraphs and (level -1) fenced code of a file; yields unreadable lines."""
    current: _Block | None = None
    fence = ""
    for number, raw in enumerate(path.read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines(), start=1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError:
            content = raw.decode("utf-8", errors="replace")
            yield Rejected("line", "", "not UTF-8", f"{name}:{number}", content)
            continue
        marker = _FENCE.match(line)
        if fence:
            if marker and marker.group(1) == fence:
                current, fence = None, ""
            elif line.strip():
                current = _grow(blocks, current, number, line.rstrip(), level=-1)
            continue
        if marker:
            current, fence = None, marker.group(1)
            continue
        heading = _HEADING.match(line)
        if heading:
            blocks.append(_Block(number, len(heading.group(1)), [_heading_text(line[heading.end() :])]))
        if heading or not line.strip() or _RULE.match(line):
            current = None
        else:
            current = _grow(blocks, current, number, line.strip(), level=0)


def _heading_text(rest: str) -> str:
    """The words of a heading by what follows its first #; those that close it stand behind a space, as in `# C# #`."""
    text = rest.strip()
    unclosed = text.rstrip("#")
    return unclosed.rstrip() if not unclosed or unclosed[-1].isspace() else text


def _grow(blocks: list[_Block], current: _Block | None, number: int, text: str, level: int) -> _Block:
    if current is None:
        current = _Block(number, level)
        blocks.append(current)
    current.text.append(text)
    return current


def plain_text(markdown: str) -> tuple[str, list[str]]:
    """The text with every inline link replaced by its words, and the targets of the links."""
    targets = [target for _, target in _INLINE_LINK.findall(markdown)]
    return _INLINE_LINK.sub(lambda match: match.group(1), markdown).strip(), targets


def link_target(target: str, relative: str, suffixes: tuple[str, ...] = SUFFIXES) -> str | None:
    """The path below the tree that a link of the article at `relative` points to; None when it is no article link."""
    path = unquote(target.split("#")[0].split("?")[0])
    if "://" in path or not path.lower().endswith(suffixes):
        return None
    base = "" if path.startswith("/") else posixpath.dirname(relative)
    return posixpath.normpath(posixpath.join(base, path.lstrip("/")))
