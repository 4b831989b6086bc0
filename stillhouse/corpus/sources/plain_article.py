"""A text file as an article: paragraphs between blank lines, with `#` headings, fenced code and inline links.

In reStructuredText, a line under a heading makes it one, and directives (`.. note::`) begin paragraphs.
"""

import re
from collections.abc import Iterator

from stillhouse.corpus.sources.article import Block
from stillhouse.corpus.sources.rows import CODE

_HEADING = re.compile(r"(#{1,6})\s")
_FENCE = re.compile(r"\s*(```|~~~)")
_ADORNMENT = re.compile(r"([=\-~^\"#*+`:.'_])\1+\s*$")
_RULE = re.compile(r"\s*([-*_])(\s*\1){2,}\s*$")
# [text](target "title") and ![text](target); the text may not contain brackets, nor the target spaces.
# Possessive (++, *+), since backtracking over thousands of spaces in an unfinished link would take hours.
_INLINE_LINK = re.compile(r"!?\[([^\[\]]*+)\]\(\s*+<?([^()\s>]*+)>?(?:\s++\"[^\"]*+\")?\s*+\)")


def plain_blocks(text: str, adorned: bool = False) -> Iterator[Block]:
    """The headings and passages of a text with line feeds as line ends; `adorned` texts are reStructuredText."""
    lines: list[str] = []
    levels: dict[str, int] = {}
    begun, fence = 0, ""

    def flush(kind: str = "") -> Iterator[Block]:
        if lines and kind:
            yield Block(begun, 0, "\n".join(lines), kind=kind)
        elif lines:
            yield Block(begun, 0, *unlinked(" ".join(lines)))
        lines.clear()

    for number, line in enumerate(text.split("\n"), start=1):
        marker = _FENCE.match(line)
        heading = None if fence else _HEADING.match(line)
        if marker and fence in ("", marker[1]):
            yield from flush(CODE if fence else "")
            fence = "" if fence else marker[1]
        elif adorned and (adornment := _ADORNMENT.match(line)) and not fence:
            if len(lines) == 1:
                yield Block(begun, levels.setdefault(adornment[1], len(levels) + 1), *unlinked(lines.pop()))
            yield from flush()
        elif adorned and line.lstrip().startswith(".. ") and not fence:
            yield from flush()
        elif heading:
            yield from flush()
            yield Block(number, len(heading[1]), *unlinked(_heading_text(line[heading.end() :])))
        elif not fence and (not line.strip() or _RULE.match(line)):
            yield from flush()
        elif line.strip():
            begun = begun if lines else number
            lines.append(line.rstrip() if fence else line.strip())
    yield from flush(CODE if fence else "")


def _heading_text(rest: str) -> str:
    """The words of a heading, from the text after its first #. A closing # follows a space, as in `# C# #`."""
    text = rest.strip()
    unclosed = text.rstrip("#")
    return unclosed.rstrip() if not unclosed or unclosed[-1].isspace() else text


def unlinked(text: str) -> tuple[str, list[str]]:
    """The text with every inline link replaced by its words, and the targets of the links."""
    targets = [target for _, target in _INLINE_LINK.findall(text)]
    return _INLINE_LINK.sub(lambda match: match[1], text).strip(), targets
