"""Lists of frequently asked questions as articles: those of Python, Perl and Debian, from packages of Debian.

apt-get install python3.11-doc perl-doc debian-faq
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lxml import html

PLACES = (
    ("Python", "doc/python3.*/html/faq/*.html"),
    ("Debian", "doc/debian/FAQ/*.en.html"),
    ("Perl", "perl/5*/pod/perlfaq[1-9].pod"),
)
"""Whose questions, and where the packages put them, under `/usr/share`."""


def faq_articles(share: Path = Path("/usr/share")) -> Iterator[dict[str, Any]]:
    """Each page as an article whose sections have the questions as headings."""
    for title, pattern in PLACES:
        if not (pages := sorted({page.resolve() for page in share.glob(pattern)})):
            raise SystemExit(f"{title}'s are not here; type: apt-get install python3.11-doc perl-doc debian-faq")
        for page in pages:
            parts = pod_parts(page.read_text(encoding="utf-8")) if page.suffix == ".pod" else html_parts(page)
            sections: list[dict[str, Any]] = [{"heading": None, "paragraphs": []}]
            for heading, part in parts:
                if heading:
                    sections.append({"heading": part, "paragraphs": []})
                else:
                    sections[-1]["paragraphs"].append(part)
            yield {"_id": page.stem, "title": title, "sections": sections}


def html_parts(page: Path) -> Iterator[tuple[bool, str]]:
    """Whether each part is a heading, and its words; the numbers and links of headings are left out."""
    for element in html.parse(page, html.HTMLParser(encoding="utf-8")).iter("h1", "h2", "h3", "h4", "p", "pre"):
        words = " ".join(element.text_content().replace("¶", " ").split())
        yield element.tag[0] == "h", re.sub(r"^[\d.]+ ", "", words) if element.tag[0] == "h" else words


def pod_parts(text: str) -> Iterator[tuple[bool, str]]:
    for part in re.split(r"\n\s*\n", text):
        words = " ".join(re.sub(r"[A-Z]<+ ?([^<>]*?) ?>+", r"\1", part).split())
        if heading := re.match(r"=head\d (.*)", words):
            yield True, heading[1]
        elif not words.startswith("="):
            yield False, words
