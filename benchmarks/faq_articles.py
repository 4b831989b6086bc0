"""Lists of frequently asked questions as articles: those of Python, Perl and Debian, from packages of Debian.

apt-get install python3.11-doc perl-doc debian-faq
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from stillhouse.corpus.sources.article import Article
from stillhouse.corpus.sources.html_article import read_page
from stillhouse.corpus.sources.rows import Passage

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
            parts = pod_parts(page) if page.suffix == ".pod" else html_parts(page)
            sections = [
                {"heading": heading, "paragraphs": [words for _, words in of]}
                for heading, of in groupby(parts, itemgetter(0))
            ]
            yield {"_id": page.stem, "title": title, "sections": sections}


def html_parts(page: Path) -> Iterator[tuple[str, str]]:
    """The passages of a page as `ingest` reads it, each after its heading without a number."""
    for row in read_page((), Article(page, page.name, page.name, page.stem, (".html",)), page.read_bytes()):
        if isinstance(row, Passage):
            yield re.sub(r"^[\d.]+ ", "", row.section), row.text


def pod_parts(page: Path) -> Iterator[tuple[str, str]]:
    """The paragraphs of a page in Perl's format, each after its heading."""
    heading = ""
    for part in re.split(r"\n\s*\n", page.read_text(encoding="utf-8")):
        words = " ".join(re.sub(r"[A-Z]<+ ?([^<>]*?) ?>+", r"\1", part).split())
        if found := re.match(r"=head\d (.*)", words):
            heading = found[1]
        elif not words.startswith("="):
            yield heading, words
