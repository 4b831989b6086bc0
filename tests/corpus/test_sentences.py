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


def test_a_text_of_many_paragraphs_has_the_sentences_of_each() -> None:
    """The library divides such a text every 10,000 characters, and leaves out the line breaks there."""
    paragraph = "The valley has a mill. Its owner came from the coast, and built a second one."
    text = "\n\n".join([paragraph] * 400)
    expected = [sentence for _ in range(400) for sentence in paragraph.split(". ", 1)]
    assert [text[begin:end].rstrip(".") for begin, end in sentence_spans(text)] == [one.rstrip(".") for one in expected]
    assert sentence_spans(text)[-1][1] == len(text)
