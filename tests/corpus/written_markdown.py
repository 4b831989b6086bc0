"""Writes Markdown from bytes: any bytes give a file that the strict reader (`slow_markdown`) finds clear.

A fuzzer that changes bytes of Markdown breaks markup more often than it makes new markup. This one combines blocks:
front matter, headings of both kinds, tables, lists, quotations, code, comments, HTML, links and notes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

WORDS = ("tea", "leaf", "a", "C", "v2", "caf\u00e9", "title", "10", "Xy", "no")
TARGETS = ("b.md", "/c/d.md", "../a.md#x", "gone.md", "e.png", "https://a.b/c.md", "c/d.txt")
ENDS = ("\n", "\r\n", "\r")
MARKS = (("", "utf-8"), ("\ufeff", "utf-8"), ("\ufeff", "utf-16-le"), ("\ufeff", "utf-16-be"))


def written(data: bytes) -> bytes:
    """Return a file: the first byte gives its encoding and line ends, the other bytes give its blocks."""
    return _Writer(data[1:]).file((data or b"\0")[0])


class _Writer:
    def __init__(self, data: bytes) -> None:
        self.bytes = iter(data)
        self.definitions: list[str] = []
        self.is_done = False

    def number(self, below: int) -> int:
        """Return the next byte modulo `below`, or 0 if no byte is left."""
        byte = next(self.bytes, None)
        self.is_done = byte is None
        return (byte or 0) % below

    def file(self, form: int) -> bytes:
        lines = self.front_matter() if form & 1 else [""]
        blocks: tuple[Callable[[], list[str]], ...] = (
            self.paragraph, self.heading, self.underlined, self.table, self.list, self.quotation, self.code,
            self.indented, self.comment, self.html, self.rule, self.note, self.list,
        )  # fmt: skip
        before = ""
        while not self.is_done:
            block = blocks[self.number(len(blocks))]
            # A list or code right after another would become a part of it.
            if block.__name__ in (before, "indented") and before in ("list", "indented", "note"):
                lines += ["<!-- apart -->", ""]
            lines += [*block(), *[""] * (1 + self.number(2))]
            before = block.__name__
        for definition in self.definitions:
            lines += [definition, ""]
        mark, encoding = MARKS[form // 2 % len(MARKS)]
        return (mark + ENDS[form // 8 % len(ENDS)].join(lines)).encode(encoding)

    def front_matter(self) -> list[str]:
        title = ("Black tea", '"Tea: all"', "~", "", "2024", "no")[self.number(6)]
        return [
            "---",
            *(["tags: leaf"] * self.number(2)),
            f"title: {title}".strip(),
            ("---", "...")[self.number(2)],
            "",
        ]

    def words(self, most: int = 3) -> str:
        return " ".join(WORDS[self.number(len(WORDS))] for _ in range(1 + self.number(most)))

    def phrase(self) -> str:
        kind, words = self.number(16), self.words()
        if kind == 9:
            self.definitions.append(f"[r{len(self.definitions)}]: {self.target()}")
            return f"[{words}][R{len(self.definitions) - 1}]"
        if kind == 10:
            self.definitions.append(f"[^n{len(self.definitions)}]: {words}")
            return f"{words}[^n{len(self.definitions) - 1}]"
        return (
            words, f"*{words}*", f"**{words}**", f"_{words}_", f"~~{words}~~", "`a * b`", f"{words} &amp; &#233; x",
            f"[{words}]({self.target()})", f'![{words}](<c d.png> "leaf")', "", "", f"\\*{words}\\_ \\&amp;",
            "<https://a.b/c>", f"<b>{words}</b>", f"{words} <!-- gone --> x", f"{words}<br>x",
        )[kind]  # fmt: skip

    def target(self) -> str:
        return TARGETS[self.number(len(TARGETS))]

    def line(self) -> str:
        return " ".join(self.phrase() for _ in range(1 + self.number(3)))

    def text(self) -> list[str]:
        """Return the lines of a paragraph; none begins like another kind of block."""
        lines = [f"w {self.line()}" for _ in range(1 + self.number(3))]
        breaks = ("", "  ", "\\")
        return [line + breaks[self.number(3)] for line in lines[:-1]] + lines[-1:]

    def paragraph(self) -> list[str]:
        return self.text()

    def heading(self) -> list[str]:
        marks = "#" * (1 + self.number(4))
        return [f"{marks} {self.line()}{('', ' ##', '#')[self.number(3)]}"]

    def underlined(self) -> list[str]:
        return [*self.text(), ("===", "---")[self.number(2)]]

    def table(self) -> list[str]:
        width = 1 + self.number(3)
        ends = ("x", "x \\| y", "*x*")
        rows = [[f"{self.words(2)} {ends[self.number(3)]}" for _ in range(width)] for _ in "ab"]
        rows.append([("", self.words(1))[self.number(2)] for _ in range(1 + self.number(width))])
        head, *others = [f"| {' | '.join(row)} |" for row in rows]
        return [head, "|" + (" --- |", ":-:|")[self.number(2)] * width, *others]

    def items(self, mark: str) -> Iterator[list[str]]:
        for number in range(1 + self.number(3)):
            begin = f"{number + 1}. " if mark == "1" else f"{mark} "
            first, *others = self.text()
            task = ("", "[ ] ", "[x] ")[self.number(3)]
            yield [f"{begin}{task}{first}", *(" " * len(begin) + line for line in others)]

    def list(self) -> list[str]:
        is_loose, has_inner, mark = self.number(2), self.number(4) == 3, ("-", "*", "1")[self.number(3)]
        lines: list[str] = []
        for item in self.items(mark):
            margin = " " * (3 if mark == "1" else 2)
            inner = [margin + line for each in self.items("+") for line in each] if has_inner else []
            lines += [*item, *inner, *[""] * is_loose]
        return lines

    def quotation(self) -> list[str]:
        inner = (self.text, self.heading, self.list, self.code)[self.number(4)]()
        return [f"> {line}" if line else ">" for line in [*inner, "", *self.text()]]

    def code(self) -> list[str]:
        fence, lines = ("```", "~~~")[self.number(2)], ("# no", "", "  x = [a](b.md)", "<p> & *y*", "| a |", "---")
        return [f"{fence}py", *(lines[self.number(len(lines))] for _ in range(1 + self.number(4))), fence]

    def indented(self) -> list[str]:
        return [f"    {('x = 1', '# no', '- a')[self.number(3)]}" for _ in range(1 + self.number(3))]

    def comment(self) -> list[str]:
        return [("<!-- gone -->"), "<!--\ngone, # too\n\n- and this\n-->"][self.number(2)].split("\n")

    def html(self) -> list[str]:
        words = self.words()
        return (f"<div>\n{words} <b>x</b>\n</div>", f"<p>{words} &amp; y</p>", "<table><tr><td>x</td></tr></table>")[
            self.number(3)
        ].split("\n")

    def rule(self) -> list[str]:
        return [("---", "***", "* * *")[self.number(3)]]

    def note(self) -> list[str]:
        self.definitions.append(f"[^n{len(self.definitions)}]: {self.words()}")
        return [self.words()]
