"""Short paragraphs of a file are joined into passages, whose titles end in the heading above them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from itertools import chain, pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from stillhouse.corpus.cleaning import CleanCorpus
from stillhouse.corpus.sources.article import JOINED
from stillhouse.corpus.sources.detect import open_source
from stillhouse.corpus.sources.rows import Passage
from stillhouse.corpus.words import estimated_tokens

Write, Read = Callable[..., Path], Callable[..., CleanCorpus]

LONG = "word " * 60
TEA = f"""# Tea

Pour.

Wait.

## Milk

Add it.

    code()

    more()

Or not.

{LONG}

{LONG}

Drink.

## Tea

None.
"""


def test_paragraphs_of_one_section_and_kind_are_joined(write: Write, read: Read) -> None:
    corpus = read(write({"a.md": TEA}))
    assert [(p.id, p.title, p.section, p.position, p.text) for p in corpus.passages.values()] == [
        ("a#1", "Tea", "", 0, "Pour.\n\nWait."),
        ("a#3", "Tea: Milk", "Milk", 2, "Add it."),
        ("a#4", "Tea: Milk", "Milk", 3, "code()\nmore()"),
        ("a#5", "Tea: Milk", "Milk", 4, f"Or not.\n\n{LONG.strip()}"),
        ("a#7", "Tea: Milk", "Milk", 6, f"{LONG.strip()}\n\nDrink."),
        ("a#9", "Tea", "Tea", 8, "None."),
    ]
    assert corpus.not_prose == {"a#4": "code"}


def test_a_labelled_paragraph_begins_a_passage(write: Write, read: Read) -> None:
    labels = {"queries.jsonl": '{"_id": "q", "text": "wait?"}\n', "qrels/test.tsv": "q\ta#2\t1\n"}
    corpus = read(write({"a.md": "Pour.\n\nWait.\n\nDrink.\n"} | labels))
    assert {p.id: p.text for p in corpus.passages.values()} == {"a#1": "Pour.", "a#2": "Wait.\n\nDrink."}
    assert [qrel.passage_id for qrel, _ in corpus.qrels] == ["a#2"]


@given(st.lists(st.integers(1, 90), min_size=1, max_size=30))
def test_a_passage_takes_what_fits(words: list[int]) -> None:
    paragraphs = [" ".join(["word"] * count) for count in words]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.txt").write_text("\n\n".join(paragraphs))
        passages = [row for row in open_source(folder).rows() if isinstance(row, Passage)]
    parts = [row.text.split("\n\n") for row in passages]
    assert list(chain.from_iterable(parts)) == paragraphs
    assert [int(row.id[2:]) for row in passages] == [1 + sum(map(len, parts[:n])) for n in range(len(parts))]
    sizes = [[estimated_tokens(part) for part in some] for some in parts]
    assert all(len(some) == 1 or sum(some) <= JOINED for some in sizes)
    assert all(sum(some) + following[0] > JOINED for some, following in pairwise(sizes))
