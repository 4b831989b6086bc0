from __future__ import annotations

import re
import unicodedata
from typing import Any

import numpy as np
import pandas as pd
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from stillhouse.core.errors import InputError
from stillhouse.corpus.words import UNSPACED
from stillhouse.evaluation import answer_matching
from stillhouse.evaluation.answer_matching import AnswerMatcher, Texts

FLAGS = regex.IGNORECASE + regex.UNICODE + regex.MULTILINE
WORDS = ["Paris", "paris", "U.S.", "l’été", "été", "e\u0301te\u0301", "ΟΔΟΣ", "Σ'Α", "İzmir", "ﬁn", "ß", "1,000", "½"]
WORDS += ["日本", "नमस्ते"]
characters = st.one_of(
    st.sampled_from("abAB01 .,-_'\t\n\x1c\u0301\u00e9\u00a0\u200b\u3000²"), st.characters(exclude_categories=["Cs"])
)
texts = st.one_of(
    st.text(characters, max_size=12),
    st.lists(st.sampled_from([*WORDS, " ", "-", "\n"]), max_size=6).map(" ".join),
    st.lists(st.sampled_from([*WORDS, " "]), max_size=4).map("".join),
)
PATTERNS = ["par.s", "^b", "a$", r"\d+", "[", "(", r"\p{L}{2}", "é", "(?i)x|y", "", r"\bU\.S"]


def words(text: str) -> list[str]:
    """Return the tokens, following the rules to the letter, then each character of an unspaced script alone."""
    found = []
    for match in regex.finditer(r"([\p{L}\p{N}\p{M}]+)|([^\p{Z}\p{C}])", unicodedata.normalize("NFD", text), FLAGS):
        found += re.sub(f"([{UNSPACED}])", r" \1 ", match.group()).lower().split()
    return found


def slow_match(answers: list[tuple[str, str]], passage: str) -> bool:
    for answer, kind in answers:
        if kind == "regex":
            try:
                compiled = regex.compile(unicodedata.normalize("NFD", answer), FLAGS)
            except regex.error:
                continue
            if compiled.search(unicodedata.normalize("NFD", passage)):
                return True
        else:
            wanted, given_words = words(answer), words(passage)
            for i in range(len(given_words) - len(wanted) + 1):
                if wanted and given_words[i : i + len(wanted)] == wanted:
                    return True
    return False


@pytest.mark.parametrize(
    ("answer", "passage", "held"),
    [
        ("308", "黑豹队的防守只丢了308分", True),
        ("卡万·肖特", "职业碗防守截锋卡万·肖特以11分领先", True),
        ("東京", "東京都の人口", True),
        ("京東", "東京都の人口", False),
        ("กรุงเทพ", "กรุงเทพมหานครเป็นเมืองหลวง", True),
        ("गंगा", "भारत में गंगा नदी", True),
        ("30", "1308 points", False),
    ],
)
def test_answers_in_scripts_without_spaces(answer: str, passage: str, held: bool) -> None:
    table = pd.DataFrame({"query_id": ["q"], "answer": [answer], "kind": ["text"]})
    matcher = AnswerMatcher(table, ["q"], texts_of([passage]))
    assert matcher.match(np.array([0]), np.array([0])).tolist() == [held]


def texts_of(passages: list[str]) -> Texts:
    return lambda rows: [passages[row] for row in rows]


def matcher(answers: dict[str, list[tuple[str, str]]], passages: list[str]) -> AnswerMatcher:
    rows = [(query, answer, kind) for query, of in answers.items() for answer, kind in of]
    return AnswerMatcher(pd.DataFrame(rows, columns=["query_id", "answer", "kind"]), list(answers), texts_of(passages))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_matching_equals_a_direct_implementation_of_the_rules(data: Any) -> None:
    """About 10,000 pairs. Most answers are cut out of a passage, so matches are common."""
    passages = data.draw(st.lists(texts, min_size=1, max_size=4))
    answers = {}
    for query in ("a", "b", "c", "none"):
        of: list[tuple[str, str]] = []
        for _ in range(data.draw(st.integers(0, 2))):
            kind = data.draw(st.sampled_from(["text", "text", "cut", "regex"]))
            if kind == "cut":
                passage = data.draw(st.sampled_from(passages))
                start = data.draw(st.integers(0, len(passage)))
                of.append((passage[start : data.draw(st.integers(start, len(passage)))].swapcase(), "text"))
            else:
                of.append((data.draw(texts if kind == "text" else st.sampled_from(PATTERNS)), kind))
        answers[query] = [] if query == "none" else of
    query_P, rows_P = (matrix.ravel() for matrix in np.meshgrid(np.arange(4), np.arange(-1, len(passages))))
    order = data.draw(st.permutations(range(len(query_P))))
    query_P, rows_P = query_P[order], rows_P[order]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answer_matching, "PASSAGES_AT_ONCE", 2)  # splits the passages into several parts
        found = matcher(answers, passages).match(query_P, rows_P)
    ids = list(answers)
    expected = [row >= 0 and slow_match(answers[ids[q]], passages[row]) for q, row in zip(query_P, rows_P)]
    assert found.tolist() == expected


@pytest.mark.parametrize(
    ("answer", "kind", "passage", "expected"),
    [
        ("Paris", "text", "in paris, France", True),
        ("Paris", "text", "comparison of Parisians", False),
        ("new york", "text", "New\n York", True),
        ("new york", "text", "New, York", False),  # punctuation is a token
        ("U.S.", "text", "the U.S. army", True),
        ("US", "text", "the U.S. army", False),
        ("été", "text", "l'e\u0301te\u0301 1999", True),  # composed and decomposed forms are equal
        ("ete", "text", "l'été 1999", False),  # a combining mark is part of its word
        ("3.5", "text", "in 3.50 s", False),
        ("", "text", "anything", False),
        (" \t", "text", "anything", False),
        ("1[89]\\d\\d", "regex", "in 1871 or so", True),
        ("^LINE", "regex", "first\nline two", True),
        ("(unclosed", "regex", "(unclosed", False),
        ("été", "regex", "e\u0301te\u0301", True),
        ("a", "text", "", False),
    ],
)
def test_cases_by_hand(answer: str, kind: str, passage: str, expected: bool) -> None:
    found = matcher({"q": [(answer, kind)]}, [passage]).match(np.array([0]), np.array([0]))
    assert found.tolist() == [expected]


def test_a_pattern_that_backtracks_endlessly_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_matching, "LONGEST_SEARCH", 0.2)
    with pytest.raises(InputError, match=r"the answer '\(a\|aa\)\+b' takes more than 0.2 seconds in one passage"):
        matcher({"q": [("(a|aa)+b", "regex")]}, ["a" * 60]).match(np.array([0]), np.array([0]))
