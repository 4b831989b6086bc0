"""The headings and paragraphs of a PDF, from the places and fonts of its lines.

A PDF has letters at places, and nothing else. PDFium puts them in order and divides them into lines; here lines become
paragraphs. What many pages have at their edges, with or without a number, is left out: running headers and footers.
"""

import ctypes
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from typing import Any, NamedTuple

from pypdfium2 import raw

from stillhouse.corpus.sources.article import Block
from stillhouse.corpus.sources.rows import CODE

AT_EDGE = 2
"""Lines at the top and at the bottom of a page that may be running headers and footers."""
REPEATS = 3
"""Pages that have such a line."""
LARGER = 1.12
"""How much larger than the usual letters those of a heading are."""
APART = 1.25
"""How much more than the usual distance of lines separates paragraphs."""
LONGEST_HEADING = 200

_ITEM = re.compile(r"([•◦▪‣●○■–*-]|\(?(\d{1,3}|[a-z])[.)])\s")
_BOLD = re.compile(r"bold|black|heavy|demi|cmbx", re.IGNORECASE)
_MONOSPACED = re.compile(r"mono|courier|typewriter|consol|cmtt", re.IGNORECASE)
_WIDE = re.compile("[\u2e80-\u9fff\uf900-\ufaff\uff00-\uff60]")
"""Letters of Chinese and Japanese, which are written without spaces."""
_ENDS = (".", "!", "?", ":", ";", "。", "！", "？")
_HYPHEN = "\x02"
"""What PDFium makes of a hyphen at the end of a line, after which it goes on with the next line."""
_LEADER = re.compile(r"(\. ?){4,}\s*[\divxlc]*$")
_NUMBER = re.compile(r"\d+|\b[ivxlc]+$")


class Line(NamedTuple):
    """A line of a page, which counts from 1; places are in points from the bottom left corner.

    `size` is that of its letters. A line stands on `top` at its beginning, and on `bottom` at its end, which is lower
    if it goes on after a hyphen.
    """

    page: int
    text: str
    left: float
    right: float
    top: float
    bottom: float
    size: float
    bold: bool
    monospaced: bool


def pdf_blocks(pdf: Any) -> list[Block]:
    """The blocks of an open `pypdfium2.PdfDocument`; each has its page, also as its line."""
    pages = [list(_lines(pdf, number)) for number in range(1, len(pdf) + 1)]
    running = _running(pages)
    lines = [line for page in pages for line in page if line not in running and not _LEADER.search(line.text)]
    if not lines:
        return []
    letters = Counter[float]()
    for line in lines:
        letters[line.size] += len(line.text)
    usual = letters.most_common(1)[0][0]
    sizes = sorted({line.size for line in lines if line.size > LARGER * usual}, reverse=True)
    blocks = (_block(some, usual, sizes) for some in _paragraphs(lines))
    return list(_whole(block for block in blocks if any(map(str.isalpha, block.text))))


def _lines(pdf: Any, number: int) -> Iterator[Line]:
    """The lines of a page in the order of the file."""
    page = pdf[number - 1]
    text = page.get_textpage()
    codes = [raw.FPDFText_GetUnicode(text, index) for index in range(raw.FPDFText_CountChars(text))]
    for ends, some in groupby(range(len(codes)), lambda index: codes[index] in (10, 13)):
        shown = [index for index in some if not ends and not chr(codes[index]).isspace() and codes[index] > 32]
        if not shown:
            continue
        first, middle, last = shown[0], shown[len(shown) // 2], shown[-1]
        words = "".join(chr(code) if code >= 32 or chr(code) == _HYPHEN else " " for code in codes[first : last + 1])
        words = words.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        # The hyphen belongs to the word in `Non-Maintainer`.
        words = re.sub(f"{_HYPHEN}(?=[A-Z0-9])", "-", " ".join(words.split())).replace(_HYPHEN, "")
        (left, _, top), (_, right, bottom) = _place(text, first), _place(text, last)
        some_letters = first, middle, last
        sizes = sorted(_size(text, index) for index in some_letters)
        fonts = [_font(text, index) for index in some_letters]
        styles = (all(map(pattern.search, fonts)) for pattern in (_BOLD, _MONOSPACED))
        yield Line(number, words, left, right, top, bottom, round(sizes[1], 1), *styles)
    text.close()
    page.close()


def _place(text: Any, index: int) -> tuple[float, float, float]:
    """Where a letter begins and ends, and the height at which it stands."""
    box, x, y = raw.FS_RECTF(), ctypes.c_double(), ctypes.c_double()
    raw.FPDFText_GetLooseCharBox(text, index, box)
    raw.FPDFText_GetCharOrigin(text, index, x, y)
    return box.left, box.right, y.value


def _size(text: Any, index: int) -> float:
    matrix = raw.FS_MATRIX()
    raw.FPDFText_GetMatrix(text, index, matrix)
    return raw.FPDFText_GetFontSize(text, index) * math.hypot(matrix.c, matrix.d)


def _font(text: Any, index: int) -> str:
    name = ctypes.create_string_buffer(100)
    raw.FPDFText_GetFontInfo(text, index, name, len(name), None)
    return name.value.decode("utf-8", errors="replace")


def _edges(page: list[Line]) -> list[Line]:
    down = sorted(page, key=lambda line: -line.bottom)
    return down[:AT_EDGE] + down[-AT_EDGE:]


def _running(pages: Iterable[list[Line]]) -> set[Line]:
    """The lines at edges that are the same on several pages, but for numbers, or that count the pages."""
    edges = {line for page in pages for line in _edges(page)}
    shapes = Counter(shape for shape, _ in {(_NUMBER.sub("#", line.text), line.page) for line in edges})
    ahead = Counter(number - page for number, page in {(n, line.page) for line in edges for n in _numbers(line)})
    return {
        line
        for line in edges
        if shapes[_NUMBER.sub("#", line.text)] >= REPEATS
        or any(ahead[number - line.page] >= REPEATS for number in _numbers(line))
    }


def _numbers(line: Line) -> Iterator[int]:
    """The number that a line begins with, and the one that it ends with."""
    words = line.text.split()
    return (int(word) for word in (words[0], words[-1]) if word.isdecimal() and len(word) < 6)


def _paragraphs(lines: list[Line]) -> Iterator[list[Line]]:
    """Groups lines of a page and of a style that follow each other at the usual distance."""
    steps: dict[tuple[float, bool], Counter[float]] = defaultdict(Counter)
    for before, line in pairwise(lines):
        steps[line.size, line.monospaced][round(before.bottom - line.top, 1)] += before.bottom > line.top
    edges: dict[tuple[int, int], float] = {}
    for line in lines:
        column = line.page, round(line.left / 20)
        edges[column] = max(line.right, edges.get(column, 0.0))
    some = [lines[0]]
    for before, line in pairwise(lines):
        [(usual, _)] = steps[line.size, line.monospaced].most_common(1)
        alike = before.page == line.page and abs(before.size - line.size) < 0.1 * line.size
        alike = alike and before[-2:] == line[-2:] and -line.size / 2 < before.bottom - line.top < APART * usual
        if alike and not line.monospaced and before.text.endswith(_ENDS):
            # The sentence ends a paragraph if the next word had room in its line, or if the next line is indented.
            word = (line.right - line.left) * (1 + len(line.text.split()[0])) / len(line.text)
            full = edges[before.page, round(before.left / 20)] - before.right < word
            alike = (full and line.left - before.left < line.size / 2) or _ITEM.match(line.text) is not None
        if alike:
            some.append(line)
        else:
            yield some
            some = [line]
    yield some


def _block(lines: list[Line], usual: float, sizes: list[float]) -> Block:
    first = lines[0]
    if first.monospaced:
        return Block(first.page, 0, "\n".join(line.text for line in lines), kind=CODE, page=first.page)
    text = first.text
    for line in lines[1:]:
        spaceless = _WIDE.match(text[-1]) and _WIDE.match(line.text)
        text += ("\n" if _ITEM.match(line.text) else "" if spaceless else " ") + line.text
    text = re.sub("\u00ad ?", "", text)
    level = 0
    if len(text) < LONGEST_HEADING and not text.endswith((".", ",", ";")):
        level = sizes.index(first.size) + 1 if first.size in sizes else 7 if first.bold else 0
    return Block(first.page, level, text, page=first.page)


def _whole(blocks: Iterable[Block]) -> Iterator[Block]:
    """Joins a paragraph that goes on at the top of the next page or column."""
    before: Block | None = None
    for block in blocks:
        prose = before and not (before.level or block.level or before.kind or block.kind)
        if before and prose and block.text[0].islower() and not before.text.endswith(_ENDS):
            before.text += f" {block.text}"
            continue
        if before:
            yield before
        before = block
    if before:
        yield before
