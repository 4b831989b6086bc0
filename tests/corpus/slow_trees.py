"""Reads Markdown and text articles slowly, and checks any reading of a damaged page."""

from __future__ import annotations

import html
import posixpath
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from slow_markdown import Leaf, blocks_of
from slow_words import Unclear

Row = tuple[Any, ...]
REJECTED: Row = ("rejected",)


def spaceless(text: str) -> str:
    """Return the text with its white space percent-encoded, as in a URL."""
    encoded = {c: "".join(f"%{byte:02X}" for byte in c.encode()) for c in set(text) if c.isspace()}
    return "".join(encoded.get(c, c) for c in text)


def article_rows(name: str, data: bytes, ids: Mapping[str, str]) -> list[Row]:
    """Return the rows of a Markdown or text article at the path `name`; `ids` maps the paths of all articles to ids.

    Raises `Unclear` for Markdown that parsers may read differently.
    """
    lines = _lines_of(data)
    if lines is None:
        return [REJECTED]
    rows: list[Row] = [REJECTED] * lines.count(None)
    read = [line for line in lines if line is not None]
    title = ""
    if not name.endswith(".txt"):
        title, read = _without_front_matter(read)
    leaves = _plain_leaves(read) if name.endswith(".txt") else joined(blocks_of(read))
    heads = [leaf for leaf in leaves if leaf.level == 1 and leaf.text]
    head = heads[0] if heads and title in ("", heads[0].text) else None
    title = title or (head.text if head else posixpath.basename(name).rpartition(".")[0])
    section, place = "", 0
    for leaf in leaves:
        if leaf.level and leaf is not head:
            section = leaf.text
        elif not leaf.level and leaf.text:
            place += 1
            id = f"{ids[name]}#{place}"
            rows.append(("passage", id, title, leaf.text, ids[name], section, place - 1))
            rows += [("notprose", id, leaf.kind)] if leaf.kind else []
        for target in leaf.targets:
            path = unquote(target.split("#")[0].split("?")[0])
            if "://" not in path and path.lower().endswith((".md", ".markdown", ".txt")):
                base = "" if path.startswith("/") else posixpath.dirname(name)
                reached = posixpath.normpath(posixpath.join(base, path.lstrip("/")))
                rows.append(("link", ids[name], ids.get(reached, reached)))
    return rows if place else [*rows, REJECTED]


MARKS = {
    b"\xff\xfe\x00\x00": "utf-32-le",
    b"\x00\x00\xfe\xff": "utf-32-be",
    b"\xff\xfe": "utf-16-le",
    b"\xfe\xff": "utf-16-be",
}


def _lines_of(data: bytes) -> list[str | None] | None:
    """Return the lines of a file, with None for a line that is not UTF-8; None if the file is not text."""
    for mark, encoding in MARKS.items():
        if data[: len(mark)] == mark:
            try:
                data = data[len(mark) :].decode(encoding).encode()
            except UnicodeError:
                return None
            break
    else:
        data = data[3:] if data[:3] == b"\xef\xbb\xbf" else data
    if 0 in data:
        return None
    lines: list[str | None] = []
    for raw in data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        try:
            lines.append(raw.decode("utf-8"))
        except UnicodeDecodeError:
            lines.append(None)
    return lines


def _without_front_matter(lines: list[str]) -> tuple[str, list[str]]:
    """Return the title of the front matter, and the other lines. Raises `Unclear` for all but the plainest YAML."""
    if not lines or lines[0].rstrip(" \t") != "---":
        return "", lines
    ends = [number for number, line in enumerate(lines) if number and line.rstrip(" \t") in ("---", "...")]
    if not ends:
        return "", lines
    title, keys = "", list[str]()
    for line in lines[1 : ends[0]]:
        found = re.fullmatch(
            r"([a-z]+):(?: ([A-Za-z0-9](?:[A-Za-z0-9 .,]*[A-Za-z0-9])?|\"[A-Za-z0-9 :.,]+\"|~))?", line
        )
        if not found or found[1] in keys:
            raise Unclear
        keys.append(found[1])
        if found[1] == "title":
            title = "" if found[2] in (None, "~", "null", "Null", "NULL") else " ".join(found[2].strip('"').split())
    return title, lines[ends[0] + 1 :]


def joined(leaves: list[Leaf]) -> list[Leaf]:
    """Return the leaves, with consecutive list items that have `joins` as one leaf."""
    found: list[Leaf] = []
    for leaf in leaves:
        if leaf.joins and found and found[-1].joins:
            found[-1] = found[-1]._replace(
                text=f"{found[-1].text}\n{leaf.text}", targets=found[-1].targets + leaf.targets
            )
        else:
            found.append(leaf)
    return found


def _plain_leaves(lines: list[str]) -> list[Leaf]:
    """Return the blocks of a text file, where the only Markdown is headings, fenced code and inline links."""
    blocks: list[tuple[int, list[str]]] = []  # (level: 0 for a paragraph, -1 for code; lines)
    is_open, fence = False, ""
    for line in lines:
        mark, heading = line.lstrip()[:3], _heading(line)
        if mark in ("```", "~~~") and fence in ("", mark):
            is_open, fence = False, "" if fence else mark
        elif not line.strip():
            is_open = is_open and bool(fence)
        elif fence or (heading is None and not _is_rule(line)):
            if not is_open:
                blocks.append((-1 if fence else 0, []))
            blocks[-1][1].append(line.rstrip() if fence else line.strip())
            is_open = True
        else:
            if heading is not None:
                blocks.append((heading[0], [heading[1]]))
            is_open = False
    return [
        Leaf("\n".join(of_block), [], kind="code") if level < 0 else Leaf(*unlinked(" ".join(of_block)), level)
        for level, of_block in blocks
    ]


def _heading(line: str) -> tuple[int, str] | None:
    """Return the level and words of a CommonMark heading; a closing # follows a space."""
    level = len(line) - len(line.lstrip("#"))
    if not 1 <= level <= 6 or not line[level : level + 1].isspace():
        return None
    words = line[level:].split()
    if words and not words[-1].strip("#"):
        return level, line[level:].rstrip().rstrip("#").strip()
    return level, line[level:].strip()


def _is_rule(line: str) -> bool:
    marks = "".join(line.split())
    return len(marks) >= 3 and len(set(marks)) == 1 and marks[0] in "-*_"


def unlinked(text: str) -> tuple[str, list[str]]:
    """Return the text with each link replaced by its words, and the targets of the links."""
    plain, targets, at = "", [], 0
    while at < len(text):
        found = _link_at(text, at + (text[at] == "!"))
        if found is None:
            plain, at = plain + text[at], at + 1
        else:
            words, target, at = found
            plain += words
            targets.append(target)
    return plain.strip(), targets


def _link_at(text: str, at: int) -> tuple[str, str, int] | None:
    """Return the words and target of the link that begins at the [ at `at`, and where it ends."""

    def skip(at: int, stop: str, spaces: bool = True) -> int:
        while at < len(text) and text[at] not in stop and (spaces or not text[at].isspace()):
            at += 1
        return at

    def skip_space(at: int) -> int:
        while at < len(text) and text[at].isspace():
            at += 1
        return at

    if text[at : at + 1] != "[":
        return None
    end = skip(at + 1, "[]")
    if text[end : end + 2] != "](":
        return None
    begin = skip_space(end + 2)
    begin += text[begin : begin + 1] == "<"
    stop = skip(begin, "()>", spaces=False)
    after = stop + (text[stop : stop + 1] == ">")
    quote = skip_space(after)
    if quote > after and text[quote : quote + 1] == '"':
        quote = skip_space(skip(quote + 1, '"') + 1)
    return (text[at + 1 : end], text[begin:stop], quote + 1) if text[quote : quote + 1] == ")" else None


def page_fault(data: bytes, texts: Sequence[str]) -> str:
    """Return what is wrong with the passages of an HTML page or a Markdown file, or "".

    No passage may be empty. Their letters and digits must be in the page, in its order, and not repeated.
    """
    if not all(text.strip() for text in texts):
        return f"{texts} has an empty passage"
    lines = _lines_of(data)
    if lines is None or None in lines:
        return ""
    page = "\n".join(line or "" for line in lines)
    # An entity is plain text in some places, such as code.
    page = re.sub(r"&#?\w+;?", lambda found: found[0] + html.unescape(found[0]), page)
    letters = iter(re.sub("[^0-9A-Za-z]", "", page))
    logged = re.sub("[^0-9A-Za-z]", "", "".join(texts))
    return "" if all(letter in letters for letter in logged) else f"{texts} are not what the page says in its order"
