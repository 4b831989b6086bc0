"""Sentence spans: cases by hand, and properties that hold for any text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillhouse.corpus.sentences import sentence_spans

CASES = [
    ("", []),
    (" \n ", []),
    ("One.", ["One."]),
    (
        "Dr. Smith went to the U.S. in Jan. 2020. He came back.",
        ["Dr. Smith went to the U.S. in Jan. 2020.", "He came back."],
    ),
    ("石門村は山にある。古い村だ！ 祭りは？", ["石門村は山にある。", "古い村だ！", "祭りは？"]),
    ("यह एक वाक्य है। यह दूसरा है।", ["यह एक वाक्य है।", "यह दूसरा है।"]),
    ("กรุงเทพเป็นเมืองหลวง มีประชากร 10 ล้านคน", ["กรุงเทพเป็นเมืองหลวง", "มีประชากร 10 ล้านคน"]),
    ("កម្ពុជាជាប្រទេសមួយ។ រាជធានីគឺភ្នំពេញ។", ["កម្ពុជាជាប្រទេសមួយ។", "រាជធានីគឺភ្នំពេញ។"]),
    ("Café au lait?  \n\n Naïve! Ends without a stop", ["Café au lait?", "Naïve!", "Ends without a stop"]),
]


@pytest.mark.parametrize(("text", "sentences"), CASES)
def test_sentences_by_hand(text: str, sentences: list[str]) -> None:
    assert [text[begin:end] for begin, end in sentence_spans(text)] == sentences


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="abกข។. \n!?\"'()é日。\u00a0\t\r…A\u2009“”’-1U.\U0001f600", max_size=60))
def test_spans_are_in_order_trimmed_and_hold_every_letter(text: str) -> None:
    spans = sentence_spans(text)
    assert all(begin < end <= after for (begin, end), (after, _) in zip(spans, [*spans[1:], (len(text), 0)]))
    assert all(text[begin:end] == text[begin:end].strip() for begin, end in spans)
    assert "".join("".join(text[begin:end].split()) for begin, end in spans) == "".join(text.split())
