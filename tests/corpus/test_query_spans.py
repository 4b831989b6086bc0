"""Spans as queries: exactly the allowed spans are drawn, and no other passage contains one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillhouse.corpus.cleaning import normalise
from stillhouse.corpus.pair_queries import PairChoices, make_pair_queries
from stillhouse.corpus.query_spans import found_elsewhere
from stillhouse.corpus.sources.rows import Passage
from stillhouse.corpus.taken_passages import TakenPassages
from stillhouse.errors import InputError

CHOICES = PairChoices(
    tasks=("span",), dev_fraction=0, test_fraction=0, per_article=100, span_words=(2, 3), max_queries={}, seed=1
)


def taken_of(texts: dict[str, list[str]]) -> TakenPassages:
    """Return passages from {article: texts of its passages}."""
    return TakenPassages.of(
        [Passage(f"{a}#{p}", "", text, a, "", p, "") for a, own in texts.items() for p, text in enumerate(own)]
    )


def test_over_many_seeds_every_span_of_the_lengths_is_drawn_and_nothing_else() -> None:
    texts = {"a": ["one two\nthree  four five", "six seven eight"], "b": ["A b c d e f G"], "c": ["one TWO here now"]}
    found: set[tuple[str, str]] = set()
    for seed in range(40):
        made = make_pair_queries(taken_of(texts), [], replace(CHOICES, seed=seed)).queries
        assert len({query.id for query in made}) == len(made)
        found |= {(query.text, query.positive) for query in made}
        for query in made:
            own = texts[query.positive[0]][int(query.positive[2:])].split()
            begin = int(query.id.removeprefix(f"span:{query.positive}:"))
            length = len(query.text.split())
            assert query.taken_from == query.positive and query.text == " ".join(own[begin : begin + length])
    # A span has at most half of the words, so three words give none; and "one two" is in two passages.
    expected = {
        (" ".join(words[begin : begin + length]), id)
        for id, words in (
            ("a#0", texts["a"][0].split()),
            ("b#0", texts["b"][0].split()),
            ("c#0", ["one", "TWO", "here", "now"]),
        )
        for length in range(2, min(len(words) // 2, 3) + 1)
        for begin in range(len(words) - length + 1)
    }
    assert found == expected - {("one two", "a#0"), ("one TWO", "c#0")}


def test_an_article_gives_at_most_its_share_and_the_seed_decides() -> None:
    texts = {name: [" ".join(f"{name}{p}w{n}" for n in range(30)) for p in range(3)] for name in "abcdefgh"}
    choices = replace(CHOICES, per_article=3, dev_fraction=0.25, test_fraction=0.25, span_words=(6, 20))
    made = make_pair_queries(taken_of(texts), [], choices)
    assert made == make_pair_queries(taken_of(texts), [], choices) and not made.verbatim
    assert made.queries != make_pair_queries(taken_of(texts), [], replace(choices, seed=2)).queries
    assert all(6 <= len(query.text.split()) <= 15 for query in made.queries)
    counts = {name: sum(query.positive[0] == name for query in made.queries) for name in texts}
    assert set(counts.values()) <= {2, 3} and made.articles == {"train": 4, "dev": 2, "test": 2}
    assert len({(query.split, query.positive[0]) for query in made.queries}) == 8


def test_spans_come_from_prose_and_repeat_no_labelled_query() -> None:
    passages = taken_of({"a": ["one two three four"], "b": ["| five | six |"]})
    made = make_pair_queries(passages, [], CHOICES, ["ONE two"], ["b#0"]).queries
    assert {query.text for query in made} <= {"two three", "three four"} and made


WORD = st.sampled_from(["x", "Y", "y", "ﬁ", "fi", "\u00a0", "\n"])
TEXT = st.lists(WORD, max_size=12).map(" ".join)


@given(st.lists(TEXT, min_size=1, max_size=5), st.data())
@settings(max_examples=300, deadline=None)
def test_found_elsewhere_equals_a_search_in_every_text(texts: list[str], data: st.DataObject) -> None:
    spans, rows = [], []
    for row, text in enumerate(texts):
        words = text.split()
        if len(words) >= 2:
            begin = data.draw(st.integers(0, len(words) - 2))
            spans.append(" ".join(words[begin : data.draw(st.integers(begin + 2, len(words)))]))
            rows.append(row)
    padded = [f" {normalise(text)} " for text in texts]
    expected = [
        any(f" {normalise(span)} " in text for other, text in enumerate(padded) if other != row)
        for span, row in zip(spans, rows)
    ]
    assert found_elsewhere(spans, np.array(rows, dtype=np.int64), 2, texts).tolist() == expected


def test_passages_too_short_for_a_span_are_refused() -> None:
    with pytest.raises(InputError, match="the corpus gives no span query; leave span out or lower pair_span_min_words"):
        make_pair_queries(taken_of({"a": ["one two three"]}), [], CHOICES)
    with pytest.raises(InputError, match=r"no train query could be made by span.*pair_span_min_words"):
        make_pair_queries(taken_of({"a": ["one two three four"] * 2}), [], CHOICES)
