"""Titles and headings as queries, compared with a slow version of the same rules on random articles."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillhouse.corpus.cleaning import normalise
from stillhouse.corpus.pair_queries import PairChoices, make_pair_queries
from stillhouse.corpus.sources.rows import Passage
from stillhouse.corpus.taken_passages import TakenPassages
from stillhouse.errors import InputError

CHOICES = PairChoices(dev_fraction=0, test_fraction=0, per_article=100, max_queries={}, seed=1)
NAMES = st.sampled_from(["", "…", "Salt", "SALT", "Sea  salt", "Overview", "Ovens", "w " * 70])
PASSAGE = st.tuples(NAMES, st.booleans())
ARTICLES = st.lists(st.tuples(NAMES, st.lists(PASSAGE, min_size=1, max_size=5)), min_size=1, max_size=5)
"""[(title, [(heading, whether it is prose)])]."""

Articles = list[tuple[str, list[tuple[str, bool]]]]


def taken_of(articles: Articles) -> TakenPassages:
    rows = [
        Passage(f"a{a}#{p}", title, f"Text {p} of {a}.", f"a{a}", heading, p, "")
        for a, (title, passages) in enumerate(articles)
        for p, (heading, _) in enumerate(passages)
    ]
    return TakenPassages.of(rows[::-1])


def not_prose(articles: Articles) -> list[str]:
    return [
        f"a{a}#{p}" for a, (_, passages) in enumerate(articles) for p, (_, prose) in enumerate(passages) if not prose
    ]


def first_prose(passages: list[tuple[int, str, bool]]) -> int:
    return next((p for p, _, prose in passages if prose), passages[0][0])


def allowed(articles: Articles) -> dict[str, set[tuple[str, str]]]:
    """Return {task: {(text, the passage that answers)}}, from every name of every article."""
    found: list[tuple[str, str, str, bool]] = []  # task, text, answer, whether that is prose
    for a, (title, passages) in enumerate(articles):
        runs: list[list[tuple[int, str, bool]]] = []
        for p, (heading, prose) in enumerate(passages):
            if not runs or runs[-1][0][1] != heading:
                runs.append([])
            runs[-1].append((p, heading, prose))
        own = [run for run in runs if normalise(run[0][1]) == normalise(title)]
        answer = first_prose(own[0] if own else [passage for run in runs for passage in run])
        found.append(("title", title, f"a{a}#{answer}", passages[answer][1]))
        for run in runs:
            found.append(("heading", run[0][1], f"a{a}#{first_prose(run)}", passages[first_prose(run)][1]))
    answers = defaultdict(set)
    for _, text, answer, _ in found:
        answers[normalise(text)].add(answer)
    titles = {normalise(text) for task, text, _, _ in found if task == "title"}
    result: dict[str, set[tuple[str, str]]] = {"title": set(), "heading": set()}
    for task, text, answer, prose in found:
        form = normalise(text)
        usable = prose and any(map(str.isalnum, form)) and len(form.split()) <= 64
        if usable and len(answers[form]) == 1 and (task == "title" or form not in titles):
            result[task].add((" ".join(text.split()), answer))
    return result


@given(ARTICLES)
@settings(max_examples=300, deadline=None)
def test_every_name_that_one_passage_answers_is_a_query_and_no_other(articles: Articles) -> None:
    expected = allowed(articles)
    for task in ("title", "heading"):
        try:
            choices = replace(CHOICES, tasks=(task,))
            made = make_pair_queries(taken_of(articles), [], choices, (), not_prose(articles)).queries
        except InputError:
            made = []
        assert {(query.text, query.positive) for query in made} == expected[task]
        assert all(query.taken_from == query.positive and query.id == f"{task}:{query.positive}:0" for query in made)


SPIRITS: Articles = [
    ("Gin", [("", False), ("", True), ("Botanicals", True), ("Botanicals", True), ("Overview", True)]),
    ("Rum", [("Notice", True), ("rum", True), ("Molasses", True), ("Overview", True)]),
    ("Malt", [("", True), ("Gin", True)]),
]


def test_which_passage_answers() -> None:
    passages, other = taken_of(SPIRITS), not_prose(SPIRITS)
    made = make_pair_queries(passages, [], replace(CHOICES, tasks=("heading", "title")), (), other)
    assert made.tasks == ("title", "heading") and not made.verbatim
    # Gin is a title and also a heading elsewhere, and Overview occurs twice. Rum is answered by its section `rum`.
    assert {(query.task, query.text, query.positive) for query in made.queries} == {
        ("title", "Rum", "a1#1"), ("title", "Malt", "a2#0"),
        ("heading", "Botanicals", "a0#2"), ("heading", "Notice", "a1#0"), ("heading", "Molasses", "a1#2"),
    }  # fmt: skip


def test_a_labelled_text_is_no_query_and_an_article_gives_no_more_than_its_share() -> None:
    passages = taken_of(SPIRITS)
    made = make_pair_queries(passages, [], replace(CHOICES, tasks=("heading",)), ["MOLASSES "])
    assert {query.text for query in made.queries} == {"Botanicals", "Notice"}
    seeds = [replace(CHOICES, tasks=("heading",), per_article=1, seed=seed) for seed in range(20)]
    drawn = [[query.text for query in make_pair_queries(passages, [], choices).queries] for choices in seeds]
    assert all(len(texts) == 2 for texts in drawn) and {"Notice", "Molasses"} < set().union(*drawn)


def test_text_that_is_both_heading_and_sentence_becomes_no_query() -> None:
    articles: Articles = [("Gin", [("Text 0 of 1.", True), ("", True)]), ("Rum", [("Molasses", True)])]
    choices = replace(CHOICES, tasks=("ict", "heading"), min_words=4, own_passage=True)
    made = make_pair_queries(taken_of(articles), [], choices).queries
    assert sorted(query.text for query in made) == ["Molasses", "Text 0 of 0.", "Text 1 of 0."]


@pytest.mark.parametrize("task", ["title", "heading"])
def test_articles_without_names_are_refused(task: str) -> None:
    with pytest.raises(InputError, match=f"the corpus gives no {task} query; leave {task} out"):
        make_pair_queries(taken_of([("", [("", True)])] * 3), [], replace(CHOICES, tasks=(task,)))
