"""Markdown as people write it: cases by hand, and random files compared with a strict reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stillhouse.corpus.ingestion import ingest_source
from stillhouse.corpus.settings import IngestSettings
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.rows import Link, NotProse, Passage, Rejected
from stillhouse.corpus.store import Corpus

Write = Callable[..., Path]
pytestmark = pytest.mark.usefixtures("paragraphs_apart")

ARTICLE = """---
title: "Black tea: all of it"
tags: [leaf]
---
<!-- nobody sees
this -->

Brewing
=======

Pour *hot* water on the
[leaves](leaf.md),  \nand `wait` for 3&nbsp;minutes.[^1]

Steps
-----
- boil
- pour, as [told][r]
    - slowly

1. drink

2. wash
   up

> Tea is [old](old.md).
>
> ## Very

| Kind  | Minutes |
| ----- | ------: |
| Black | 4 \\| 5 |
| Green |         |

```sh
# no heading

  brew --tea
```

    indented <b>

<p align="center">Good &amp; <b>ho</b>t</p>

\\*No list\\* &copy; ![a pot](pot.png)<br>end

[r]: <leaf.md> "The leaf"
[^1]: Or more.
"""


def rows_of(folder: Path, text: str | bytes, name: str = "a.md") -> list[Any]:
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return list(open_source(str(folder), "article-tree").rows())


def test_an_article_with_everything(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, ARTICLE)
    kinds = {row.id: row.kind for row in rows if isinstance(row, NotProse)}
    passages = [row for row in rows if isinstance(row, Passage)]
    assert {row.title for row in passages} == {f"Black tea: all of it: {part}" for part in ("Brewing", "Steps")}
    assert [(row.section, kinds.get(row.id, ""), row.where.partition(":")[2], row.text) for row in passages] == [
        ("Brewing", "", "11", "Pour hot water on the leaves, and wait for 3\u00a0minutes."),
        ("Steps", "", "17", "boil\npour, as told\nslowly"),
        ("Steps", "", "21", "drink"),
        ("Steps", "", "23", "wash up"),
        ("Steps", "", "26", "Tea is old."),
        ("Steps", "", "28", "Very"),
        ("Steps", "table", "30", "Kind | Minutes\nBlack | 4 | 5\nGreen |"),
        ("Steps", "code", "35", "# no heading\n  brew --tea"),
        ("Steps", "code", "41", "indented <b>"),
        ("Steps", "", "43", "Good & hot"),
        ("Steps", "", "45", "*No list* \u00a9 a pot end"),
        ("Steps", "", "48", "Or more."),
    ]
    assert [row.target for row in rows if isinstance(row, Link)] == ["leaf.md", "leaf.md", "old.md"]
    assert not [row for row in rows if isinstance(row, Rejected)]


@pytest.mark.parametrize(
    ("text", "title", "sections", "reasons"),
    [
        ("---\ntitle: T\n---\n# H\n\nx", "T", ["H"], []),
        ("---\ntitle: H\n---\n# H\n\nx", "H", [""], []),
        ("---\ntitle:\n---\n# H\n\nx", "H", [""], []),
        ("---\ntags: a\n...\nx", "a", [""], []),
        ("---\r\ntitle: 2024-01-01\r\n---\r\n\r\nx", "2024-01-01", [""], []),
        ("\ufeff---\ntitle: T\n---\nx", "T", [""], []),
        ("One\ntwo\n===\nx", "One two", [""], []),
        ("## S\n\nx\n\n# Late\n\ny", "Late", ["S", "S"], []),
        ("x\n\n#\n\ny", "a", ["", ""], []),
        ("---\ntitle: A: b\n---\n# H\n\nx", "H", [""], ["front matter is not YAML"]),
        ("---\ntitle: [b]\n---\n\nx", "a", [""], ["the title of the front matter is not text"]),
        ("---\nc: &a b\ntitle: *a\n---\n\nx", "b", [""], []),
        ("---\na: {title: no, b: [c]}\nd: [e]\nTitle: >\n  yes,\n  this\n---\n\nx", "yes, this", [""], []),
        ("---\ntitle: 'null'\ntitle: \"~\"\n---\n\nx", "~", [""], []),
        ("---\ntitle: a\n--- b\n---\n\nx", "a", [""], ["front matter is not YAML"]),
        ("---\n# nothing\n---\n\nx", "a", [""], []),
        # Two thematic breaks are not front matter, and neither is a block that does not end.
        ("---\nSome text.\n\n---\nx", "a", ["", ""], []),
        ("---\ntitle: T\n\nx", "a", ["", ""], []),
    ],
)
def test_titles_and_sections(text: str, title: str, sections: list[str], reasons: list[str], tmp_path: Path) -> None:
    rows = rows_of(tmp_path, text)
    passages = [row for row in rows if isinstance(row, Passage)]
    titles = [f"{title}: {section}" if section else title for section in sections]
    assert [(row.title, row.section) for row in passages] == list(zip(titles, sections))
    assert [row.reason for row in rows if isinstance(row, Rejected)] == reasons


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<!-- a -->", []),
        ("a <!-- b --> c", ["a c"]),
        ("<!--> words", ["words"]),
        ("<div>a < b > c</div>", ["a < b > c"]),
        ("<div title='a > b'>c</div>", ["c"]),
        ("<style>\np {}\n</style>\n\n<script>x\n\ny</script>", []),
        ("<details>\n<summary>More</summary>\n\nText\n\n</details>", ["More", "Text"]),
        ("a **b\nc** d\\\ne", ["a b c d e"]),
        ("- a\n\n      code\n- b\n", ["a", "code", "b"]),
        ("- a\n- b\n\ntext\n\n- c", ["a\nb", "text", "c"]),
        ("- a\n\n* b\n* c", ["a", "b\nc"]),
        ("- [x] done\n- [ ] open", ["done\nopen"]),
        ("> a\nlazy\n> b", ["a lazy b"]),
        ("> [!NOTE]\n> text", ["text"]),
        ("***\n\n___\n\n- - -", []),
        ("![](a.png)\n\nx", ["x"]),
        ("a\n| b |\n| - |\n| c |", ["a", "b\nc"]),
        ("```\nopen\n\nend", ["open\nend"]),
        ("~~gone~~ H~2~O", ["gone H~2~O"]),
        ("<me@a.md> and [x](mailto:b@c)", ["me@a.md and x"]),
        ("- [Do I *need* it?](#need)\n  1. [Yes](#yes)\n- [Or](#or) not\n\n[Up](#) [1](#f)", ["Or not"]),
        ("- [Do I need it?](#need)\n\n- [No](#no)\n\nSee [No](#no).\n\n[1](#f)", ["See No.", "1"]),
        ("| to | does |\n| - | - |\n| [go](#go) | [run](#run) |", ["to | does\ngo | run"]),
    ],
)
def test_passages_hold_the_text_without_markup(text: str, said: list[str], tmp_path: Path) -> None:
    rows = rows_of(tmp_path, text)
    assert [row.text for row in rows if isinstance(row, Passage)] == said
    assert not [row for row in rows if isinstance(row, Link)]


@pytest.mark.parametrize("suffix", ["md", "txt"])
@pytest.mark.parametrize(
    ("data", "texts", "rejected"),
    [
        ("# A\n\ntea".encode("utf-16"), ["tea"], []),
        (b"\xfe\xff" + "# A\r\n\r\ncaf\u00e9".encode("utf-16-be"), ["caf\u00e9"], []),
        (b"\xff\xfe\x00\x00" + "tea".encode("utf-32-le"), ["tea"], []),
        ("# A\n\ntea".encode("utf-16-le"), [], [("passage", "a", "holds NUL", 1)]),
        (b"\xff\xfet\x00e", [], [("passage", "a", "not UTF-16-LE", 1)]),
        (b"tea\x00", [], [("passage", "a", "holds NUL", 1)]),
        (b"one\n\ncaf\xe9", [], [("passage", "a", "not UTF-8", 1)]),
        (b"one\rtwo\r\n\r\nthree", ["one two", "three"], []),
    ],
)
def test_encodings(
    data: bytes, texts: list[str], rejected: list[tuple[str, str, str, int]], suffix: str, tmp_path: Path
) -> None:
    rows = rows_of(tmp_path, data, f"a.{suffix}")
    assert [row.text for row in rows if isinstance(row, Passage)] == texts
    found = [row for row in rows if isinstance(row, Rejected)]
    assert len(found) == len(rejected)
    for row, (kind, id, reason, line) in zip(found, rejected):
        assert (row.kind, row.id, row.where) == (kind, id, f"a.{suffix}:{line}") and row.reason.startswith(reason)


SENTENCE = "The {} article says a long enough sentence about its passage number {}."


def of_tables_and_code(name: str) -> str:
    says = [SENTENCE.format(name, number) for number in range(4)]
    return f"# {name}\n\n| {says[0]} |\n|---|\n| {says[1]} |\n\n```\n{says[2]}\n```\n\n{says[3]}\n"


def test_no_question_is_made_of_a_table_or_of_code(write: Write, tmp_path: Path) -> None:
    """They are still passages and may be relevant. The same holds when the corpus is read back as a source."""
    names = ("ant", "bee", "cat", "dog", "elk")
    source = str(write({f"{name}.md": of_tables_and_code(name) for name in names}))
    for place in ("first", "second"):
        folder = tmp_path / place
        folder.mkdir()
        settings = IngestSettings(queries="pairs", dev_fraction=0, pair_queries_per_article=30, seed=1)
        facts = ingest_source(open_source(source), settings, folder)
        corpus = Corpus.open(folder)
        assert facts["not_prose"] == {"code": 5, "table": 5} and facts["passages"] == 15
        assert corpus.not_prose == {f"{n}#{k}": kind for n in names for k, kind in ((1, "table"), (2, "code"))}
        assert set(corpus.queries["text"]) == {SENTENCE.format(name, 3) for name in names}
        assert set(corpus.qrels["passage_id"]) & corpus.not_prose.keys()
        source = str(folder)
