"""Foreign text in Markdown: text from a corpus, a file or an error is shown literally, never as markup."""

from __future__ import annotations

import re
from html import escape

MARKUP = re.compile(
    r"[\\`*_\[\]|~#=$]"  # emphasis, code, links, cells of tables, headings, formulas
    r"|:(?=//)|(?<=www)\."  # addresses, which many renderers turn into links
    r"|^[-+]"  # lists and lines
)
NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")
"""The start of a numbered list."""


def as_text(text: object) -> str:
    """One line of Markdown that shows `text` and nothing else, in a table too."""
    line = " ".join(str(text).split())
    return NUMBERED.sub(r"\1\\\2", MARKUP.sub(r"\\\g<0>", escape(line, quote=False)))
