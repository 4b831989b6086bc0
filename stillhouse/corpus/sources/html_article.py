"""An HTML page as an article: headings are sections; paragraphs, list items, table rows and code are passages, and
tables of contents are left out.

Ids are made as in a tree of Markdown. If a page has exactly one `main` (or element with that role, or `article`), only
that is read. The title is its first `h1`, else the page's `title`, else the file's name.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from typing import Any

from lxml import etree, html

from stillhouse.corpus.sources.article import Article, Block, only_links_to_sections
from stillhouse.corpus.sources.rows import CODE, CONTENT_LENGTH, TABLE, Row
from stillhouse.corpus.sources.table_columns import kept_fields
from stillhouse.corpus.sources.text_encoding import NotText, decode_page

HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
LEFT_OUT = frozenset(
    "nav footer aside script style noscript template svg math form button select iframe object title".split()  # noqa: SIM905
)
"""Elements whose text and links do not belong to the article. `head` is not included: in a page without `<body>`, the
parser puts unknown elements there."""
FURNITURE = frozenset(("navigation", "search", "contentinfo", "complementary", "dialog", "alertdialog"))
"""Roles of elements that do not belong to the article either."""
_CONSENT = re.compile(r"\b(cookie|consent|gdpr)s?[-_]?(banner|bar|notice|popup|dialog|modal|consent)\b", re.IGNORECASE)
"""Names of banners that ask to accept cookies."""
INLINE = frozenset(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img ins kbd label mark q s samp small span strike "  # noqa: SIM905
    "strong sub sup time tt u var wbr ruby rb rt rp script style noscript template svg math button select iframe "
    "object title br td th".split()
)
"""Elements that do not end a paragraph; every other element does, even a left-out one. Cells of a row stay together."""
CELLS = frozenset(("td", "th"))
NEWER = frozenset(
    "article aside details dialog figcaption figure footer header hgroup main nav search section summary".split()  # noqa: SIM905
)
"""Elements that libxml2 does not know. They would not end a paragraph without `</p>`, and the next paragraph would end
both, so that the rest of a menu would become part of the article. The parser therefore gets `div` instead."""
_NEWER = re.compile(rf"<(/?)({'|'.join(NEWER)})(?=[\s/>])", re.IGNORECASE)
_NAME = "in-truth"
"""The attribute of such a `div` with the original name."""
_HEADING_MARKS = ("¶", "§", "#", "\uf0c1", "🔗")
"""Characters that documentation tools put after a heading as a link to it."""


def read_page(names: Sequence[str], article: Article, data: bytes) -> Iterator[Row]:
    """The rows of a page. Its fields `names` are of its `lang` and its `meta` elements. Raises `NotText`."""
    text = decode_page(data)
    try:
        page = _parse(text)
    except NotText as reason:
        yield article.rejected(str(reason), text[:CONTENT_LENGTH])
        return
    metas = {meta.get("name") or meta.get("property"): meta.get("content") for meta in page.iter("meta")}
    fields = kept_fields(names, {"lang": page.get("lang"), **metas})
    named = " ".join((page.findtext(".//title") or "").split())
    yield from article.rows(_blocks(_main(page)), named or posixpath.basename(article.id), fields=fields)


def _parse(text: str) -> Any:
    """The root element. Raises `NotText` for a page that the parser could not read to its end."""
    try:
        # Without `huge_tree`, a page is silently cut at 256 nested elements, or at ten million consecutive characters.
        parser = html.HTMLParser(encoding="utf-8", huge_tree=True)
        page = html.document_fromstring(_NEWER.sub(_known, text).encode(), parser=parser)
    except (etree.LxmlError, ValueError, LookupError, AssertionError):
        raise NotText("not HTML") from None
    if any(entry.type == etree.ErrorTypes.ERR_RESOURCE_LIMIT for entry in parser.error_log):
        raise NotText("elements nested too deeply")
    for element in page.iter("div"):
        name = element.get(_NAME, "").lower()
        element.tag = name if name in NEWER else "div"
    return page


def _known(tag: re.Match[str]) -> str:
    """The tag of an element in `NEWER`, turned into a `div` tag."""
    end, name = tag.groups()
    return "</div" if end else f"<div {_NAME}={name}"


def _main(page: Any) -> Any:
    """The part of a page that is marked as its article, without menus, notices and help; or the whole page."""
    parts = page.xpath("//main | //*[@role='main']") or page.xpath("//article")
    return parts[0] if len(parts) == 1 else page


def _is_left_out(element: Any) -> bool:
    if element.tag in LEFT_OUT or "hidden" in element.attrib or element.get("aria-hidden") == "true":
        return True
    names = f"{element.get('id')} {element.get('class')}"
    return element.get("role") in FURNITURE or _CONSENT.search(names) is not None


def _page_of(target: str) -> str:
    """The path of a link's target, which is `index.html` for a link to a folder."""
    path = target.split("#")[0].split("?")[0].strip()
    return f"{path}index.html" if path.endswith("/") else path


def _blocks(page: Any) -> Iterator[Block]:
    """The headings and paragraphs of a page, in order: the text between two boundaries of block elements is one."""
    parts: list[str] = []
    outside: list[str] = []
    links: list[str] = []
    level, pre, table, to_section, line = 0, 0, 0, 0, 1

    def say(words: str | None) -> None:
        parts.append(words or "")
        if not to_section:
            outside.append(words or "")

    def flush() -> Iterator[Block]:
        text = "".join(parts)
        text = text.strip("\n").rstrip() if pre else " ".join(text.split())
        if level:
            text = text.rstrip("".join(_HEADING_MARKS) + " ")
        if text.strip():
            kind = CODE if pre else TABLE if table else ""
            if not level and not pre and only_links_to_sections(text, "".join(outside)):
                text = ""
            yield Block(line, level, text, [_page_of(link) for link in links], kind)
        parts.clear()
        outside.clear()
        links.clear()

    walk = etree.iterwalk(page, events=("start", "end", "comment", "pi"))
    for event, element in walk:
        tag = element.tag if isinstance(element.tag, str) else ""
        of_data = tag == "table" and element.xpath("boolean(tr/th | */tr/th)")  # others lay out a page
        if event == "start":
            if tag not in INLINE:
                yield from flush()
            if _is_left_out(element):
                walk.skip_subtree()
                continue
            if tag == "br":
                say("\n")
            elif tag in CELLS:
                say(" ")
            elif tag not in INLINE:
                line = element.sourceline or line
                level = HEADINGS.index(tag) + 1 if tag in HEADINGS else 0
                pre += tag == "pre"
                table += of_data
            elif tag == "a" and (target := element.get("href")):
                links.append(target)
                to_section += "#" in target
            say(element.text)
        elif event == "end" and not _is_left_out(element):
            if tag not in INLINE:
                yield from flush()
                level = 0
                pre -= tag == "pre"
                table -= of_data
            elif tag == "a":
                to_section -= "#" in element.get("href", "")
        if event != "start" and element is not page:  # what follows a `main` is not its text
            say(element.tail)
    yield from flush()
