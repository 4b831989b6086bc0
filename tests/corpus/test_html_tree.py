"""Trees of HTML pages."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from stillhouse.corpus.cleaning import CleanCorpus
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.rows import Passage

Write, Read = Callable[..., Path], Callable[..., CleanCorpus]
pytestmark = pytest.mark.usefixtures("paragraphs_apart")

PAGE = b"""<!DOCTYPE html>
<html><head><title>Tea &mdash; us</title><style>p { color: red }</style><script>var p = "<p>no</p>";</script></head>
<body>
<nav><ul><li><a href="water.html">Water</a></li></ul></nav>
<header><h1>Black <em>tea</em><a class="headerlink" href="#tea">\xc2\xb6</a></h1></header>
<div>Loose text<br>on two lines <!-- unseen --> and on.
<p>Tea is a <a href="plants/shrub.html#leaf">leaf</a>.</p></div>
<h2>Making</h2>
<ul><li>Pour <a href="water.html">water</a></li><li><p>Wait</p></li></ul>
<pre>
x = 1
  y = <b>2</b>
</pre>
<table><tr><td><p><table><tr><th>Kind</th><th>Minutes</th></tr><tr><td>Black</td><td>4</td></tr></table>
<h3>Links</h3></table>
<p><a href="https://example.org/a.html">away</a> <a href="gone.html">gone</a> <a href="plants/">all</a>
<a href="tea.html">self</a> <a href="note.pdf">file</a></p>
<div role=contentinfo>Imprint</div><div class="site CookieConsent"><p>We use cookies</p></div>
<footer><p>Copyright</p></footer>
</body></html>
"""
TREE: dict[str, str | bytes] = {
    "articles/tea.html": PAGE,
    "articles/plants/shrub.htm": "<title>A shrub</title><p>Unclosed <p>paragraphs &amp; caf\u00e9",
    "articles/plants/index.html": "<p>All plants. <a href='../tea.html'>Tea</a>",
    "articles/water.html": "<meta charset=iso-8859-1><h1>Water</h1><p>caf\u00e9".encode("latin-1"),
    "articles/main.html": (
        "<title>Site</title><h1>Site</h1><p>Banner</p><div role=main><h2 hidden>Help</h2><h1>Own §</h1><p>Text"
        "<span aria-hidden=true>icon</span> on.</div><p>After"
    ),
    "articles/article.html": "<h1>Site</h1><article><p>Words</p></article>",
    "articles/two.html": "<h1>Blog</h1><article><p>One</p></article><article><p>Two</p></article>",
    "articles/empty.html": "",
    "articles/no_text.html": "<html><body><nav>menu</nav></body></html>",
    "articles/.hidden/x.html": "<p>unseen",
    "articles/robots.txt": "none",
    "queries.jsonl": '{"_id": "q1", "text": "what is tea"}\n',
    "qrels/test.tsv": "q1\ttea#2\t1\n",
}


def test_a_tree_of_pages_becomes_passages_links_and_labels(write: Write, read: Read) -> None:
    folder = write(TREE)
    assert open_source(str(folder)).format == "article-tree"
    corpus = read(folder)
    assert [(p.id, p.title, p.section, p.position, p.text) for p in corpus.passages.values()] == [
        ("article#1", "article", "", 0, "Words"),
        ("main#1", "Own", "", 0, "Text on."),
        ("plants/index#1", "index", "", 0, "All plants. Tea"),
        ("plants/shrub#1", "A shrub", "", 0, "Unclosed"),
        ("plants/shrub#2", "A shrub", "", 1, "paragraphs & caf\u00e9"),
        ("tea#1", "Black tea", "", 0, "Loose text on two lines and on."),
        ("tea#2", "Black tea", "", 1, "Tea is a leaf."),
        ("tea#3", "Black tea: Making", "Making", 2, "Pour water"),
        ("tea#4", "Black tea: Making", "Making", 3, "Wait"),
        ("tea#5", "Black tea: Making", "Making", 4, "x = 1\n  y = 2"),
        ("tea#6", "Black tea: Making", "Making", 5, "Kind Minutes"),
        ("tea#7", "Black tea: Making", "Making", 6, "Black 4"),
        ("tea#8", "Black tea: Links", "Links", 7, "away gone all self file"),
        ("two#1", "Blog", "", 0, "One"),
        ("two#2", "Blog", "", 1, "Two"),
        ("water#1", "Water", "", 0, "caf\u00e9"),
    ]
    assert set(corpus.links) == {("tea", "water"), ("tea", "plants/index"), ("plants/index", "tea")}
    assert corpus.split_of == {"q1": "test"}
    assert {(row.kind, row.id, row.reason) for row in corpus.rejected} == {
        ("passage", "empty", "not HTML"),
        ("passage", "no_text", "article without a paragraph"),
        ("link", "tea", "points to no article"),
    }
    assert corpus.not_prose == {"tea#5": "code", "tea#6": "table", "tea#7": "table"}
    rows = open_source(str(folder)).rows()
    assert ("tea#5", "articles/tea.html:10") in {(row.id, row.where) for row in rows if isinstance(row, Passage)}
    # plants/shrub.html is not in the tree: the file is plants/shrub.htm.
    assert [row.content for row in corpus.rejected if row.kind == "link"] == [
        "tea -> plants/shrub.html",
        "tea -> gone.html",
    ]


@pytest.mark.parametrize(("depth", "taken"), [(100, True), (300, True), (2000, True), (5000, False)])
def test_a_page_is_read_to_its_end_or_rejected(depth: int, taken: bool, write: Write, read: Read) -> None:
    """A parser may stop silently where elements are nested too deeply."""
    deep = "<div>" * depth + "<p>within</p>" + "</div>" * depth
    corpus = read(write({"a.html": f"<p>before</p>{deep}<p>after</p>", "b.html": "<p>other</p>"}))
    texts = [passage.text for passage in corpus.passages.values()]
    assert texts == (["before", "within", "after", "other"] if taken else ["other"])
    rejected = [] if taken else [("passage", "a", "elements nested too deeply", "a.html:1")]
    assert [row[:4] for row in corpus.rejected] == rejected


UMLAUTS = "<p>caf\u00e9 \u201ctea\u201d</p>"
CHARSET = '<meta charset="{}">'
ENCODED: dict[str, tuple[bytes, str, str]] = {
    # name: (bytes of the page, the text that is read from it, reason for its rejection)
    "UTF-8": (UMLAUTS.encode(), UMLAUTS, ""),
    "UTF-8, by its mark": (b"\xef\xbb\xbf" + (CHARSET.format("latin1") + UMLAUTS).encode(), UMLAUTS, ""),
    "UTF-16, little end first": (b"\xff\xfe" + UMLAUTS.encode("utf-16-le"), UMLAUTS, ""),
    "UTF-16, big end first": (b"\xfe\xff" + (CHARSET.format("utf-8") + UMLAUTS).encode("utf-16-be"), UMLAUTS, ""),
    "UTF-16 without a mark": (UMLAUTS.encode("utf-16-le"), "", "not UTF-8, and declares no encoding"),
    "ASCII in UTF-16 without a mark": ("<p>tea".encode("utf-16-le"), "", "holds NUL"),
    "UTF-16, cut off": (b"\xff\xfe<\x00p\x00>", "", "not UTF-16-LE, as its byte-order mark says"),
    "windows-1252": ((CHARSET.format("windows-1252") + UMLAUTS).encode("cp1252"), UMLAUTS, ""),
    "as browsers mean it": ((CHARSET.format("ISO-8859-1") + UMLAUTS).encode("cp1252"), UMLAUTS, ""),
    "by http-equiv": (
        b"<meta content='text/html; charset=windows-1252' HTTP-EQUIV=Content-Type>" + UMLAUTS.encode("cp1252"),
        UMLAUTS,
        "",
    ),
    "by the XML declaration": (
        b"<?xml version='1.0' encoding='windows-1252'?><html>" + UMLAUTS.encode("cp1252"),
        UMLAUTS,
        "",
    ),
    "in seven bits": ((CHARSET.format("iso-2022-jp") + "<p>\u8336").encode("iso-2022-jp"), "<p>\u8336", ""),
    "of many bytes": ((CHARSET.format("gb2312") + "<p>\u8336").encode("gbk"), "<p>\u8336", ""),
    "UTF-16 that can be read as ASCII": ((CHARSET.format("utf-16") + UMLAUTS).encode(), UMLAUTS, ""),
    "declared in a comment": (f"<!-- {CHARSET.format('latin1')} -->{UMLAUTS}".encode(), UMLAUTS, ""),
    "not as it declares": ((CHARSET.format("utf-8") + UMLAUTS).encode("cp1252"), "", "not UTF-8, as it declares"),
    "of nobody's encoding": (
        (CHARSET.format("klingon") + UMLAUTS).encode(),
        "",
        "declares an encoding that is not known",
    ),
    "not declared": (UMLAUTS.encode("cp1252"), "", "not UTF-8, and declares no encoding"),
}


@pytest.mark.parametrize("name", ENCODED)
def test_the_encoding_comes_from_the_byte_order_mark_or_the_declaration(name: str, write: Write, read: Read) -> None:
    data, page, reason = ENCODED[name]
    corpus = read(write({"a.html": data, "b.html": "<p>other"}))
    said = [re.sub("<.*?>", "", page)] if page else []
    assert [row.text for row in corpus.passages.values()] == [*said, "other"]
    assert [row[:2] for row in corpus.rejected] == [("passage", "a")] * bool(reason)
    assert all(row.reason.startswith(reason) for row in corpus.rejected)


@pytest.mark.parametrize("marked", ["<main>{}</main>", "<article>{}</article>", "<div role=main>{}</div>"])
def test_what_follows_the_marked_part_of_a_page_is_not_read(marked: str, write: Write, read: Read) -> None:
    page = f"<body>Menu {marked.format('<p>Bats hunt.</p> At night.')}\u00a9 2024 Example Corp</body>"
    corpus = read(write({"a.html": page}))
    assert [row.text for row in corpus.passages.values()] == ["Bats hunt.", "At night."]


@pytest.mark.parametrize(
    "contents",
    [
        '<div class=toc><dl><dt>1.1. <a href="#need">Do I need it?</a></dt><dt>1.2. <a href="#no">No</a></dl></div>',
        '<ul><li><p><a class=reference href="a.html#need"><span>1</span> Do I need <em>it</em>?</a></p></ul>',
        '<table><tr><td>2.</td><td><a href="#need">Do I need it?</a></td></tr></table><p><a href="#">Up</a></p>',
    ],
)
def test_a_table_of_contents_is_left_out(contents: str, write: Write, read: Read) -> None:
    """Its entries repeat the words of a question, and would rank before the section that answers it."""
    heading = '<h2><a id=need href="#need">Do I need it?</a></h2>'
    kept = (
        '<p><a href="b.html">Tea</a></p><p>See <a href="#need">Do I need it?</a></p><p>No.</p><p><a href="#f">1</a></p>'
    )
    corpus = read(write({"a.html": contents + heading + kept + '<pre><a href="#x">x</a></pre>', "b.html": "<p>other"}))
    texts = [(row.section, row.text) for row in corpus.passages.values()]
    asked = [("Do I need it?", text) for text in ("Tea", "See Do I need it?", "No.", "1", "x")]
    assert texts == [*asked, ("", "other")]
