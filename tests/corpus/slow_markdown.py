"""Reads the blocks of Markdown files slowly, by a strict grammar of markup that every parser reads alike.

Anything else raises `Unclear`; `page_fault` of `slow_trees` then checks what was read. It uses no code of `stillhouse`
and no parser.
"""

from __future__ import annotations

import html
import re
from typing import NamedTuple

from slow_words import TARGET, Unclear, words_of

FENCE = re.compile(r"(```|~~~)\w*")
HEADING = re.compile(r"(#{1,6})(?: +(.*))?")
RULE = re.compile(r"([-*_])\1{2,}|([-*_])(?: \2){2,}")
UNDERLINE = re.compile(r"=+|-{2,}")
SEPARATOR = re.compile(r"\|(?: ?:?-+:? ?\|)+")
DEFINITION = re.compile(rf"\[([A-Za-z0-9]+)\]: ({TARGET})(?: \"\w+\")?")
NOTE = re.compile(r"\[\^([A-Za-z0-9]+)\]: (\w.*)")
MARKER = re.compile(r"([-*+]|[0-9]{1,3}[.)]) (?=[^ ])")
BLOCK_TAG = re.compile(r"</?(?:div|p|table|tr|details|summary)>")
IN_HTML = re.compile(
    r"(</?(?:div|p|table|tr|td|details|summary)>)|(</?(?:b|i|em)>)|(<!-- [a-z ]* -->)|(&(?:amp|lt|gt);|[\w .,])"
)
PLAIN = re.compile(r"[\w(\"'.,;:?%/$@{}\\&\[!`*_<~]")
"""How a line of a paragraph may begin."""
ODD = re.compile(r"```|~~~|</?\w+>$|\[.+\]:|[0-9]+[.)](?: |$)")
"""How it may not begin: as code, a block of HTML, a definition, or a list item without words."""


class Leaf(NamedTuple):
    """A heading (`level` above 0) or a passage; with `joins`, it is a list item to join with its neighbours."""

    text: str
    targets: list[str]
    level: int = 0
    kind: str = ""
    joins: bool = False


def blocks_of(lines: list[str]) -> list[Leaf]:
    """Return the headings and passages of a file in order, also those without words. Raises `Unclear`."""
    definitions: dict[str, str] = {}
    notes: set[str] = set()
    for line in lines:
        if not line.isprintable() or (line and not line.strip()) or "\u00a0" in line:
            raise Unclear
        if found := DEFINITION.fullmatch(line):
            if definitions.setdefault(found[1].lower(), found[2]) != found[2]:
                raise Unclear
        elif found := NOTE.fullmatch(line):
            if found[1] in notes:
                raise Unclear
            notes.add(found[1])
    reader = _Reader(definitions, notes)
    leaves = reader.read(lines, 0)
    if reader.defined != definitions.keys() | {f"^{note}" for note in notes}:
        raise Unclear  # for example, one in code, which defines nothing
    return leaves


class _Reader:
    def __init__(self, definitions: dict[str, str], notes: set[str]) -> None:
        self.definitions, self.notes = definitions, notes
        self.defined: set[str] = set()

    def read(self, lines: list[str], depth: int) -> list[Leaf]:
        """Return the blocks of lines that are `depth` containers deep."""
        leaves: list[Leaf] = []
        at = 0
        while at < len(lines):
            line, is_apart = lines[at], at == 0 or not lines[at - 1]
            if not line or RULE.fullmatch(line):
                at += 1
                continue
            if FENCE.match(line):
                at = self.code(lines, at, leaves)
            elif found := HEADING.fullmatch(line):
                level = 0 if depth else len(found[1])
                leaves.append(Leaf(*self.words(_unclosed(found[2] or "")), level))
                at += 1
            elif line.startswith("    ") and is_apart and not depth:
                at = self.indented(lines, at, leaves)
            elif line.startswith("<!--"):
                at = _after_comment(lines, at)
            elif BLOCK_TAG.match(line):
                at = self.html(lines, at, leaves)
            elif line.startswith("|") and is_apart and not depth:
                at = self.table(lines, at, leaves)
            elif line.startswith(">"):
                at = self.quotation(lines, at, leaves, depth)
            elif MARKER.match(line):
                at = self.list(lines, at, leaves)
            elif line.startswith("[") and (NOTE.fullmatch(line) or DEFINITION.fullmatch(line)):
                at = self.definition(lines, at, leaves, is_apart and not depth)
            else:
                at = self.paragraph(lines, at, leaves, depth)
        return leaves

    def words(self, text: str) -> tuple[str, list[str]]:
        return words_of(text, self.definitions, self.notes)

    def definition(self, lines: list[str], at: int, leaves: list[Leaf], is_one: bool) -> int:
        if not is_one or _is_filled(lines, at + 1):
            raise Unclear
        if note := NOTE.fullmatch(lines[at]):
            self.defined.add(f"^{note[1]}")
            leaves += self.read([note[2]], 1)
            if next(filter(None, lines[at + 1 :]), "").startswith(" "):
                raise Unclear  # perhaps another paragraph of the note
        elif target := DEFINITION.fullmatch(lines[at]):
            self.defined.add(target[1].lower())
        return at + 1

    def paragraph(self, lines: list[str], at: int, leaves: list[Leaf], depth: int) -> int:
        begin = at
        while _is_filled(lines, at):
            line = lines[at]
            if at > begin and UNDERLINE.fullmatch(line):
                level = 0 if depth else 1 + line.startswith("-")
                leaves.append(Leaf(*self.words("\n".join(lines[begin:at])), level))
                return at + 1
            if at > begin and self._begins(line):
                break
            bare = line.strip() if at > begin else line
            if self._begins(bare) or _is_odd(bare):
                raise Unclear
            at += 1
        leaves.append(Leaf(*self.words("\n".join(lines[begin:at]))))
        return at

    def _begins(self, line: str) -> bool:
        """Whether a line ends the paragraph before it. Raises `Unclear` for a numbered list not starting at 1."""
        if (found := MARKER.match(line)) and found[1][0].isdigit() and found[1][:-1] != "1":
            raise Unclear
        starts = found or FENCE.fullmatch(line) or HEADING.fullmatch(line) or RULE.fullmatch(line)
        return bool(starts or BLOCK_TAG.match(line) or line.startswith((">", "<!--")))

    def code(self, lines: list[str], at: int, leaves: list[Leaf]) -> int:
        fence = FENCE.fullmatch(lines[at])
        if fence is None:
            raise Unclear
        end = next((n for n in range(at + 1, len(lines)) if lines[n] == fence[1]), len(lines))
        code = lines[at + 1 : end]
        if any(line.strip().startswith(fence[1]) for line in code):
            raise Unclear
        leaves.append(_code(code))
        return end + 1

    def indented(self, lines: list[str], at: int, leaves: list[Leaf]) -> int:
        code = []
        while at < len(lines) and (not lines[at] or lines[at].startswith("    ")):
            code.append(lines[at][4:])
            at += 1
        leaves.append(_code(code))
        return at

    def html(self, lines: list[str], at: int, leaves: list[Leaf]) -> int:
        said, begin = "", at
        while _is_filled(lines, at):
            place = 0
            while place < len(lines[at]):
                found = IN_HTML.match(lines[at], place)
                if found is None:
                    raise Unclear
                said += " " if found[1] or found[3] else html.unescape(found[4] or "")
                place = found.end()
            said, at = said + " ", at + 1
        is_table = re.search("<(table|tr|td)>", "".join(lines[begin:at]))
        leaves.append(Leaf(" ".join(said.split()), [], kind="table" if is_table else ""))
        return at

    def table(self, lines: list[str], at: int, leaves: list[Leaf]) -> int:
        if not _is_filled(lines, at + 1) or not SEPARATOR.fullmatch(lines[at + 1]):
            raise Unclear
        width, begin = lines[at + 1].count("|") - 1, at
        rows: list[str] = []
        targets: list[str] = []
        while _is_filled(lines, at):
            first, *cells, last = re.split(r"(?<!\\)\|", lines[at])
            if first or last or not cells or len(cells) > width or "\\\\" in lines[at] or "`" in lines[at]:
                raise Unclear
            if at == begin and len(cells) < width:
                raise Unclear
            if at != begin + 1:
                read = [self.words(cell.strip()) for cell in cells]
                targets += [target for _, own in read for target in own]
                if any(words for words, _ in read):
                    rows.append(" | ".join([words for words, _ in read] + [""] * (width - len(read))).strip())
            at += 1
        leaves.append(Leaf("\n".join(rows), targets, kind="table"))
        return at

    def quotation(self, lines: list[str], at: int, leaves: list[Leaf], depth: int) -> int:
        inner = []
        while _is_filled(lines, at):
            if not re.match(r">(?: [^\[]|$)", lines[at]):
                raise Unclear
            inner.append(lines[at][2:])
            at += 1
        leaves += self.read(inner, depth + 1)
        return at

    def list(self, lines: list[str], at: int, leaves: list[Leaf], is_nested: bool = False) -> int:
        """Read one list. An item is a paragraph, or a paragraph and a list without blank lines."""
        kind, items, is_loose = _kind(lines[at]), list[list[str]](), False
        while at < len(lines) and _kind(lines[at]) == kind and not RULE.fullmatch(lines[at]):
            margin = " " * MARKER.match(lines[at]).end()  # type: ignore[union-attr]
            item, at = [lines[at][len(margin) :]], at + 1
            while _is_filled(lines, at) and lines[at].startswith(margin):
                item.append(lines[at][len(margin) :])
                at += 1
            items.append(item)
            blank = at
            while at < len(lines) and not lines[at]:
                at += 1
            if at == blank < len(lines) and not MARKER.match(lines[at]):
                raise Unclear  # perhaps a line of the item's paragraph without its margin
            if at > blank and at < len(lines):
                if lines[at].startswith(" "):
                    raise Unclear  # perhaps another paragraph of the item
                is_loose = is_loose or _kind(lines[at]) == kind
        for item in items:
            item[0] = re.sub(r"^\[[ x]\] (?=\S)", "", item[0])
            first = item[0]
            if self._begins(first) or _is_odd(first):
                raise Unclear
            inner = next((n for n, line in enumerate(item) if MARKER.match(line)), len(item))
            leaves.append(Leaf(*self.words("\n".join(item[:inner])), joins=not is_loose))
            if inner < len(item):
                if is_nested or any(self._begins(line) or line[:1] == " " for line in item[:inner]):
                    raise Unclear
                nested: list[Leaf] = []
                if self.list(item, inner, nested, is_nested=True) < len(item):
                    raise Unclear
                leaves += nested
            elif any(self._begins(line.strip()) or "|" in line or UNDERLINE.fullmatch(line) for line in item):
                raise Unclear
        if not is_nested:
            leaves.append(Leaf("", []))  # an item of another list does not join this one's
        return at


def _is_filled(lines: list[str], at: int) -> bool:
    return at < len(lines) and lines[at] != ""


def _is_odd(line: str) -> bool:
    """Whether a line may be anything but a line of a paragraph."""
    return "|" in line or not PLAIN.match(line) or bool(ODD.match(line))


def _kind(line: str) -> str:
    """Return the mark that distinguishes a list from the next one, such as - or the . after a number."""
    found = MARKER.match(line)
    return found[1][-1] if found else ""


def _code(lines: list[str]) -> Leaf:
    return Leaf("\n".join(line.rstrip() for line in lines if line.strip()), [], kind="code")


def _after_comment(lines: list[str], at: int) -> int:
    begin = at
    if re.match("<!--.?>", lines[at]):
        raise Unclear
    while at < len(lines) and "-->" not in lines[at][4 * (at == begin) :]:
        at += 1
    if at < len(lines) and not re.fullmatch(r"(<!--)?[\w ,.]*-->", lines[at]):
        raise Unclear
    return at + 1


def _unclosed(text: str) -> str:
    """Return the words of a heading without its closing #, which must follow a space."""
    bare = text.rstrip().rstrip("#")
    return bare.rstrip() if not bare or bare.endswith(" ") else text.rstrip()
