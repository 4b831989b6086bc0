"""Words in any script: cases by hand, and the same words as other libraries where scripts have spaces."""

from __future__ import annotations

import bm25s
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillhouse.corpus.words import count_words, terms_in, words_in

SPACED = st.text(alphabet="abcé ÄßІя_19.,-'\t\n", max_size=60)
ANY = st.text(alphabet="ab. é日本カตัमि한\u0301\u3099\u200d\U00020000\n", max_size=60)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("about 東京.", ["about", "東", "京", "."]),
        ("मैं हिन्दी हूँ", ["मैं", "हिन्दी", "हूँ"]),
        ("กรุงเทพ", ["ก", "รุ", "ง", "เ", "ท", "พ"]),  # a vowel above or below stays with its consonant
        ("한국어 문장", ["한국어", "문장"]),
        ("", []),
    ],
)
def test_words_by_hand(text: str, words: list[str]) -> None:
    assert words_in(text) == words


@given(ANY)
def test_words_hold_every_character_but_white_space(text: str) -> None:
    assert "".join(words_in(text)) == "".join(text.split()) and count_words(text) == len(words_in(text))


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("石門村は何", ["石門", "門村", "村は", "は何"]),
        ("何?", ["何"]),
        ("iPhoneを買う 5G", ["iphone", "を買", "買う", "5g"]),
        ("हिन्दी की", ["हिन्दी", "की"]),
        ("กรุงเทพ", ["กร", "รุ", "ุง", "งเ", "เท", "ทพ"]),
        ("Cafe\u0301 a İZMİR", ["café", "izmir"]),
    ],
)
def test_terms_by_hand(text: str, terms: list[str]) -> None:
    assert terms_in(text) == terms


@given(SPACED)
def test_terms_of_scripts_with_spaces_are_those_of_bm25s(text: str) -> None:
    [expected] = bm25s.tokenize(text, stopwords=[], return_ids=False, show_progress=False)
    assert terms_in(text) == expected
