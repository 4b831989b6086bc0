"""Pages for people: templates that are one HTML file, the style sheet that they share, and foreign text in Markdown.

In Markdown, text from a corpus, a file or an error is shown literally, never as markup.
"""

import re
from collections.abc import Callable
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template, select_autoescape
from markupsafe import Markup

MARKUP = re.compile(
    r"[\\`*_\[\]|~#=$]"  # emphasis, code, links, cells of tables, headings, formulas
    r"|:(?=//)|(?<=www)\."  # addresses, which many renderers turn into links
    r"|^[-+]"  # lists and lines
)
NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")
"""The start of a numbered list."""
SECURE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}
"""The headers of a page that a service makes: it needs no script and nothing from elsewhere."""


def as_text(text: object) -> str:
    """One line of Markdown that shows `text` and nothing else, in a table too."""
    line = " ".join(str(text).split())
    return NUMBERED.sub(r"\1\\\2", MARKUP.sub(r"\\\g<0>", escape(line, quote=False)))


def shared_style() -> str:
    return Path(__file__).with_name("style.css").read_text(encoding="utf-8")


@cache
def page_template(path: Path, **filters: Callable[..., Any]) -> Template:
    """The template in a file, which may include others of its folder; `style` is the shared style sheet.

    Values are escaped in HTML, and a name without a value is an error.
    """
    environment = Environment(
        loader=FileSystemLoader(path.parent),
        autoescape=select_autoescape(),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters)
    return environment.get_template(path.name, globals={"style": Markup(shared_style())})
