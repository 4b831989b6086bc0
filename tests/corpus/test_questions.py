"""How a model's answer becomes a question."""

from __future__ import annotations

import json

import pytest

from stillhouse.corpus.chat_api import BrokenAnswer, Reply
from stillhouse.corpus.questions import MOST_ANSWERED, MOST_CHARACTERS, as_line, questions_of, scored_questions

TEXT = "Salt keeps food because water leaves it?"
TWO = ["Why does salt keep food?", "Who sold salt?"]
FORMS = {
    "plain": "Why does salt keep food?\nWho sold salt?",
    "Windows": "Why does salt keep food?\r\nWho sold salt?\r\n",
    "numbered": "1. Why does salt keep food?\n2. Who sold salt?",
    "numbered without a space": "1.Why does salt keep food?\n2.Who sold salt?",
    "in parentheses": "(1) Why does salt keep food?\n2) Who sold salt?",
    "bullets": "- Why does salt keep food?\n• Who sold salt?",
    "quoted": '1. "Why does salt keep food?"\n2. “Who sold salt?”',
    "Markdown": "**1.** Why does salt keep food?\n**Question 2:** *Who sold salt?*",
    "named": "Q1: Why does salt keep food?\nQ2: Who sold salt?",
    "introduced": "Sure! Here are 2 questions:\n\n1. Why does salt keep food?\n\n2. Who sold salt?\n\nI hope it helps.",
    "twice": "Why does salt keep food?\nWHY does  salt keep food?\nWho sold salt?",
    "JSON": json.dumps(TWO),
    "JSON in a fence": f"```json\n{json.dumps({'questions': TWO})}\n```",
    "JSON objects": json.dumps([{"question": text} for text in TWO]),
    "thought about": "<think>What is asked?\nIs it salt?</think>\nWhy does salt keep food?\nWho sold salt?",
    "the passage itself": f"{TEXT.upper()}\nWhy does salt keep food?\nWho sold salt?",
    "control characters": "Why \x1b[2J salt?\nWhy does salt keep food?\nWhich \u202e salt?\nWho\x00?\nWho sold salt?",
    "half a character": "Why \ud800?\nWhy does salt keep food?\nWho sold salt?",
    "too long": f"Why {'salt ' * MOST_CHARACTERS}?\nWhy does salt keep food?\nWho sold salt?",
    "no letters": "1. ?\n42?\nWhy does salt keep food?\nWho sold salt?",
    "more than asked for": "Why does salt keep food?\nWho sold salt?\nWhere is salt?",
}


@pytest.mark.parametrize("form", FORMS)
def test_questions_are_found(form: str) -> None:
    assert questions_of(Reply(FORMS[form], cut=False), TEXT, 2) == TWO


KEYWORDS = "1. salt and food\n2. price of salt:\n3. trade in 3.5 million tons of salt"


def test_an_item_of_a_list_needs_no_question_mark() -> None:
    found = questions_of(Reply(KEYWORDS, cut=False), TEXT, 9)
    assert found == ["salt and food", "trade in 3.5 million tons of salt"]
    assert questions_of(Reply(KEYWORDS, cut=True), TEXT, 9) == ["salt and food"], "the last line may be half a line"
    assert questions_of(Reply("3.5 million tons of what?", cut=True), TEXT, 9) == ["3.5 million tons of what?"]


def test_only_the_mark_of_a_line_is_left_out() -> None:
    assert as_line("\n 2. What is a well-known theorem?\nNext", marked=False) == "What is a well-known theorem?"
    assert as_line("What does the Q: drive mean?", marked=True) == "- What does the Q: drive mean?"


def test_other_scripts_have_question_marks_of_their_own() -> None:
    lines = ["盐为什么能保存食物？", "لماذا يحفظ الملح الطعام؟"]
    assert questions_of(Reply("\n".join(lines), cut=False), TEXT, 2) == lines


BROKEN = {
    "refusal": "I'm sorry, but I cannot help with that.",
    "page": "<!DOCTYPE html><html><body>Bad gateway</body></html>",
    "the passage alone": TEXT,
    "numbers": "[1, 2, 3]",
    "object": '{"a": 1, "b": 2}',
    "deep": "[" * 10_000,
    "long": "Why?\n" * MOST_ANSWERED,
    "thoughts alone": "<think>Why salt?</think>",
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_reply_that_is_not_a_list_of_questions_is_broken(case: str) -> None:
    with pytest.raises(BrokenAnswer):
        questions_of(Reply(BROKEN[case], cut=False), TEXT, 2)


def test_a_question_has_the_likelihood_of_its_line() -> None:
    text = "<think>\nIs it salt?</think> Why does salt keep food?\nWHO sold salt?\nWho sold salt?"
    reply = Reply(text, False, (-1.0, -2.0, -3.0, -4.0))
    assert scored_questions(reply, TEXT, 3) == {TWO[0]: None, "WHO sold salt?": -3.0}
