"""Text of others in Markdown: whatever a corpus, a file or an error says is shown as it is and is no markup."""

from __future__ import annotations

import re
from html import escape

MARKUP = re.compile(
    r"[\\`*_\[\]|~#=$]"  # emphasis, code, links, cells of tables, headings, formulas
    r"|:(?=//)|(?<=www)\."  # addresses, of which many renderers make links
    r"|^[-+]"  # lists and lines
)
NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")
"""What begins a list with numbers."""


def as_text(text: object) -> str:
    """One line of Markdown that shows `text` and nothing else, within a table too."""
    line = " ".join(str(text).split())
    return NUMBERED.sub(r"\1\\\2", MARKUP.sub(r"\\\g<0>", escape(line, quote=False)))
