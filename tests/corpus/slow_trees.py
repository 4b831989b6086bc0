"""Articles in Markdown read slowly, character by character, and what every reading of an HTML page must keep."""

from __future__ import annotations

import html
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

Row = tuple[Any, ...]
REJECTED: Row = ("rejected",)


def spaceless(text: str) -> str:
    """White space percent-encoded, as in an address."""
    encoded = {c: "".join(f"%{byte:02X}" for byte in c.encode()) for c in set(text) if c.isspace()}
    return "".join(encoded.get(c, c) for c in text)


def article_rows(name: str, data: bytes, ids: Mapping[str, str]) -> Iterator[Row]:
    """The rows of a Markdown or text article at the path `name`; `ids` are those of all articles by their paths."""
    blocks: list[tuple[int, list[str]]] = []  # level of a heading, 0 of a paragraph, -1 of code; lines
    is_open, fence = False, ""
    for raw in data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n"):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError:
            yield REJECTED
            continue
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
    first = next((number for number, (level, _) in enumerate(blocks) if level == 1), -1)
    stem = posixpath.basename(name).rpartition(".")[0]
    title = unlinked(blocks[first][1][0])[0] if first >= 0 else stem
    section, place = "", 0
    for number, (level, lines) in enumerate(blocks):
        text, targets = unlinked(("\n" if level < 0 else " ").join(lines))
        if number == first:
            continue
        if level > 0:
            section = text
        else:
            place += 1
            yield "passage", f"{ids[name]}#{place}", title, text, ids[name], section, place - 1
        for target in targets:
            path = unquote(target.split("#")[0].split("?")[0])
            if "://" not in path and path.lower().endswith((".md", ".markdown", ".txt")):
                base = "" if path.startswith("/") else posixpath.dirname(name)
                reached = posixpath.normpath(posixpath.join(base, path.lstrip("/")))
                yield "link", ids[name], ids.get(reached, reached)
    if not place:
        yield REJECTED


def _heading(line: str) -> tuple[int, str] | None:
    """The level and words of a heading of CommonMark: # that close it stand behind a space."""
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
    """The text with the words of its links in their place, and the links' targets."""
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
    """The words and target of the link that begins at a [, and where it ends."""

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
    """What is wrong with the passages of an HTML page, "" if nothing: they say what it says, in its order, once."""
    try:
        page = html.unescape(data.decode("utf-8"))
    except UnicodeDecodeError:
        return ""
    letters = iter(re.sub("[^0-9A-Za-z]", "", page))
    told = re.sub("[^0-9A-Za-z]", "", "".join(texts))
    return "" if all(letter in letters for letter in told) else f"{texts} are not what the page says in its order"
