"""Article trees and article JSONL, and how a source is recognised."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sources_to_damage import write_files

from stillhouse.core.errors import InputError
from stillhouse.corpus.cleaning import clean
from stillhouse.corpus.sources.detect import FORMATS, open_source
from stillhouse.corpus.sources.plain_article import unlinked
from stillhouse.corpus.sources.rows import Passage

TREE = {
    "articles/tea.md": (
        b"# Black tea\n\nTea is a leaf\nof a [shrub](plants/shrub.md).\n\n"
        b"## Making\n\nPour [water](water.txt#boil) on it.\n\n---\n\n"
        b'```\n# not a heading\n\nx = 1\n```\n\n### Milk ###\nSee [tea](tea.md) and [shrub](plants/shrub.md "again").\n'
    ),
    "articles/plants/shrub.md": b"A shrub is small.\n\n[Up](../tea.md), [away](https://example.org/a.md), [gone](x.md)",
    "articles/water.txt": b"# Water\nWater is wet.\nIt boils.\n",
    "articles/empty.md": b"# Nothing here\n",
    "articles/two words.md": b"Named with a space.\n",
    "articles/.hidden/secret.md": b"Unseen.\n",
    "queries.jsonl": b'{"_id": "q1", "text": "what is a shrub"}\n',
    "qrels/test.tsv": b"query-id\tcorpus-id\tscore\nq1\tplants/shrub#1\t1\n",
}


@pytest.mark.usefixtures("paragraphs_apart")
def test_a_tree_becomes_passages_links_and_labels(tmp_path: Path) -> None:
    source = open_source(str(write_files(TREE, tmp_path)))
    assert source.format == "article-tree"
    corpus = clean(source.rows())
    rows = [(p.id, p.title, p.section, p.position, p.text) for p in corpus.passages.values()]
    assert rows == [
        ("plants/shrub#1", "shrub", "", 0, "A shrub is small."),
        ("plants/shrub#2", "shrub", "", 1, "Up, away, gone"),
        ("tea#1", "Black tea", "", 0, "Tea is a leaf of a shrub."),
        ("tea#2", "Black tea: Making", "Making", 1, "Pour water on it."),
        ("tea#3", "Black tea: Making", "Making", 2, "# not a heading\nx = 1"),
        ("tea#4", "Black tea: Milk", "Milk", 3, "See tea and shrub."),
        ("two%20words#1", "two words", "", 0, "Named with a space."),
        ("water#1", "Water", "", 0, "Water is wet. It boils."),
    ]
    assert set(corpus.links) == {("plants/shrub", "tea"), ("tea", "plants/shrub"), ("tea", "water")}
    assert corpus.split_of == {"q1": "test"}
    assert {(row.kind, row.id, row.reason, row.where) for row in corpus.rejected} == {
        ("passage", "empty", "article without a paragraph", "articles/empty.md:1"),
        ("link", "plants/shrub", "points to no article", "articles/plants/shrub.md:3"),
    }
    assert ("tea#4", "articles/tea.md:19") in {(row.id, row.where) for row in source.rows() if isinstance(row, Passage)}


@pytest.mark.parametrize(
    ("markdown", "text", "targets"),
    [
        ("no link", "no link", []),
        ("[a](b.md)", "a", ["b.md"]),
        ('x [a](b.md "t") y', "x a y", ["b.md"]),
        ("![alt](pic.png) z", "alt z", ["pic.png"]),
        ("[a](<b.md>)", "a", ["b.md"]),
        ("[x] (not)", "[x] (not)", []),
    ],
)
def test_links_are_replaced_by_their_text(markdown: str, text: str, targets: list[str]) -> None:
    assert unlinked(markdown) == (text, targets)


@pytest.mark.parametrize(
    ("line", "heading"),
    [
        ("# A", "A"),
        ("## A ##", "A"),
        ("# C#", "C#"),  # as in CommonMark: a closing # follows a space
        ("# C# #", "C#"),
        ("# #", ""),
        ("# A # B", "A # B"),
        ("# A" + " " * 100_000 + "b", "A" + " " * 100_000 + "b"),  # and must not take hours
        ("# A" + "#" * 100_000 + "b", "A" + "#" * 100_000 + "b"),
    ],
)
@pytest.mark.timeout(20)
def test_headings(line: str, heading: str, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text(f"# First\n\n{line}\n\ntext\n")
    [passage] = open_source(str(tmp_path)).rows()
    assert isinstance(passage, Passage) and passage.section == heading


@pytest.mark.timeout(20)
def test_an_unterminated_link_is_text_and_found_in_linear_time() -> None:
    for begin in ("[a](", "[a](b", '[a](b "c"', '[a](b "'):
        text = begin + " " * 100_000 + "x"
        assert unlinked(text) == (text, [])


ARTICLE = {
    "_id": "a",
    "title": "A",
    "sections": [
        {"heading": "", "level": 0, "paragraphs": ["lead", " ", 7]},
        {"heading": "Use", "level": 1, "paragraphs": ["deep"]},
    ],
    "links": ["b", "b", "a", "z"],
}
BROKEN = {
    "no sections": ({"_id": "x"}, "no sections"),
    "sections is text": ({"_id": "x", "sections": "s"}, "sections is not a list"),
    "section is text": ({"_id": "x", "sections": ["s"]}, "a section is not a JSON object"),
    "no paragraphs": ({"_id": "x", "sections": [{"heading": "h"}]}, "no paragraphs"),
    "heading": ({"_id": "x", "sections": [{"heading": 3, "paragraphs": ["p"]}]}, "heading is not text"),
    "no paragraph": ({"_id": "x", "sections": []}, "article without a paragraph"),
    "links": ({"_id": "x", "sections": [{"paragraphs": ["p"]}], "links": [1]}, "a link is not text"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_article_jsonl(name: str, tmp_path: Path) -> None:
    other = {"_id": "b", "sections": [{"heading": "", "level": 0, "paragraphs": ["only"]}]}
    broken, reason = BROKEN[name]
    path = tmp_path / "articles.jsonl"
    path.write_text("".join(json.dumps(article) + "\n" for article in (ARTICLE, other, broken)))
    corpus = clean(open_source(str(tmp_path)).rows())
    rows = [(p.id, p.title, p.article_id, p.section, p.position, p.text) for p in corpus.passages.values()]
    assert rows == [
        ("a#1", "A", "a", "", 0, "lead"),
        ("a#4", "A", "a", "Use", 3, "deep"),
        ("b#1", "", "b", "", 0, "only"),
    ]
    assert list(corpus.links) == [("a", "b")]
    assert {(row.kind, row.reason) for row in corpus.rejected} == {
        ("passage", "empty passage"),
        ("passage", "paragraph is not text"),
        ("link", "points to no article"),
        ("passage", reason),
    }


def test_a_single_file_is_recognised_by_its_first_object(tmp_path: Path) -> None:
    write_files(
        {"x.jsonl": b'oops\n{"passage_id": 4, "text": "x"}\n', "y.jsonl": json.dumps(ARTICLE).encode()}, tmp_path
    )
    assert open_source(str(tmp_path / "x.jsonl")).format == "jsonl"
    assert open_source(str(tmp_path / "y.jsonl")).format == "article-jsonl"
    assert list(clean(open_source(str(tmp_path / "x.jsonl")).rows()).passages) == ["4"]


def test_an_unrecognised_source_says_what_it_holds_and_what_is_read(tmp_path: Path) -> None:
    write_files({"data.xml": b"<a/>"}, tmp_path)
    with pytest.raises(InputError, match=r"it holds 1 \.xml file; .*\.md"):
        open_source(str(tmp_path))
    with pytest.raises(InputError, match="has no known format"):
        open_source(str(tmp_path / "data.xml"))
    with pytest.raises(InputError, match="is a file"):
        open_source(str(tmp_path / "data.xml"), "beir")


@pytest.mark.parametrize("format", [format for format in FORMATS if format not in ("auto", "ir_datasets")])
def test_a_folder_of_another_format_is_refused(format: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no"):
        open_source(str(tmp_path), format)
