"""Reads lines and cells of text files slowly, following `docs/reference/formats.md`, character by character.

It uses no code of `stillhouse`, because the readers are compared with it (`slow_readers`).
"""

from __future__ import annotations

from collections.abc import Iterator

LONGEST_QUOTED_TSV_CELL = 200
"""The most lines of a row with quoted tab-separated cells; in a longer one the quote is text."""


class Refused(Exception):
    """The whole source must be refused."""


def lines_of(data: bytes) -> list[str | None]:
    """Return the lines without line ends; None for one that is not UTF-8. Raises `Refused` if all are blank."""
    pieces = data.split(b"\n")
    if not pieces[-1]:
        pieces.pop()
    if pieces and pieces[0].startswith(b"\xef\xbb\xbf"):
        pieces[0] = pieces[0][3:]
    if all(byte in b" \t\r\n\v\f" for piece in pieces for byte in piece):
        raise Refused("empty")
    lines: list[str | None] = []
    for piece in pieces:
        while piece[-1:] == b"\r":
            piece = piece[:-1]
        try:
            lines.append(piece.decode("utf-8"))
        except UnicodeDecodeError:
            lines.append(None)
    return lines


def is_blank(line: str) -> bool:
    return all(character in " \t\r\n\v\f" for character in line)


def filled_lines(data: bytes) -> list[str | None]:
    return [line for line in lines_of(data) if line is None or not is_blank(line)]


def quoted_row(text: str, delimiter: str) -> list[str] | str:
    """The cells of a row by RFC 4180, "open" if a quoted cell continues, or "broken". `text` ends in a newline."""
    cells, at = [], 0
    while True:
        cell = ""
        if text[at] == '"':
            at += 1
            while True:
                if at == len(text):
                    return "open"
                if text[at] != '"':
                    cell += text[at]
                elif text[at + 1 : at + 2] == '"':
                    cell, at = cell + '"', at + 1
                else:
                    break
                at += 1
            at += 1
            if text[at] != delimiter and text[at] not in "\r\n":
                return "broken"
        else:
            while text[at] != delimiter and text[at] not in "\r\n":
                cell, at = cell + text[at], at + 1
        cells.append(cell)
        if text[at] in "\r\n":
            return cells if all(character in "\r\n" for character in text[at:]) else "broken"
        at += 1


def quoting_rows(data: bytes, delimiter: str) -> Iterator[list[str] | None]:
    """Yield the rows of a file with commas or another delimiter except tabs, without blank rows.

    Yields None for each rejected line or row.
    """
    lines = lines_of(data)
    at = 0
    while at < len(lines):
        if lines[at] is None:
            yield None
            at += 1
            continue
        text, row, spoiled = "", "open", 0
        while row == "open" and at < len(lines):
            if lines[at] is None:
                spoiled += 1
            else:
                text += f"{lines[at]}\n"
                row = quoted_row(text, delimiter)
            at += 1
        for _ in range(spoiled):
            yield None
        if isinstance(row, str) or spoiled:
            yield None
        elif row != [""] or text.startswith('"'):
            yield row


def tab_rows(data: bytes) -> Iterator[list[str] | None]:
    """Yield the rows of a tab-separated file likewise; quotes that are not balanced are text."""
    lines = lines_of(data)
    at = 0
    while at < len(lines):
        line = lines[at]
        if line is None:
            yield None
        elif (quoted := _quoted_at(lines, at)) is not None:
            count, cells = quoted
            yield cells
            at += count
            continue
        elif line:
            yield line.split("\t")
        at += 1


def _quoted_at(lines: list[str | None], at: int) -> tuple[int, list[str]] | None:
    """Return how many lines from `at` make one row with quoted cells, and its cells; None if they make none."""
    if '"' not in (lines[at] or ""):
        return None
    text = ""
    for count, line in enumerate(lines[at : at + LONGEST_QUOTED_TSV_CELL], start=1):
        if line is None:
            return None
        text += line + "\n"
        row = quoted_row(text, "\t")
        if row == "broken":
            return None
        if row != "open":
            assert not isinstance(row, str)
            return None if any("\t" in cell and "\n" in cell for cell in row) else (count, row)
    return None
