"""Finds the questions in a model's answer. The model was asked for one per line, but may have written anything.

A line is a question if it ends in a question mark, or is an item of a list: numbered, with a bullet, or in JSON. So
neither "Here are three questions:" nor an apology counts. Lines are left out if they hold control characters or marks
that change the direction of writing, are too long, have no letter, only repeat the passage, or repeat an earlier line.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress

from stillhouse.core.terminal import CONTROL, DIRECTION
from stillhouse.corpus.chat_api import BrokenAnswer, Reply
from stillhouse.corpus.cleaning import normalise
from stillhouse.corpus.sources.text_encoding import is_unicode

MOST_CHARACTERS = 300
"""No person would type a longer question."""
MOST_ANSWERED = 20_000
"""A longer answer did not follow the instructions."""
_THOUGHTS = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
"""The thoughts that reasoning models write before their answer."""
_FENCE = re.compile(r"^\s*```\w*\s*$", re.MULTILINE)
_MARK = re.compile(r"(?:[*_\"'“]*\(?(?:[Qq](?:uestion)?\s?\d{0,3}|\d{1,3})\s?[.):]|[-*•–])(?:\s+|(?=[^\s\d]))")
"""The mark of a list item: `1.`, `(2)`, `**3:**`, `Q4:`, a bullet; not the `3.` of `3.5 million`."""
_QUOTES = "\"'`“”„‘’«»*_ "
_ENDS = ("?", "？", "؟", "⸮", "՞", "፧")
"""Question marks of many scripts."""
_HARMFUL = re.compile(f"[{CONTROL}{DIRECTION}]")


def questions_of(reply: Reply, text: str, number: int) -> list[str]:
    """The first `number` questions of an answer about a passage's `text`. Raises `BrokenAnswer` if there is none."""
    answer = _FENCE.sub("", _THOUGHTS.sub("", reply.text))
    if len(answer) > MOST_ANSWERED:
        raise BrokenAnswer(f"the answer has {len(answer):,} characters")
    found: dict[str, str] = {normalise(text): ""}
    for line in _lines(answer, reply.cut):
        if question := _sound(line):
            found.setdefault(normalise(question), question)
    questions = [question for question in found.values() if question]
    if not questions:
        raise BrokenAnswer("the answer is not a list of questions")
    return questions[:number]


def scored_questions(reply: Reply, text: str, number: int) -> dict[str, float | None]:
    """As `questions_of`, each with the log-likelihood of the first line that has it; None where the answer has none."""
    questions = questions_of(reply, text, number)
    if not reply.log_likelihoods:
        return dict.fromkeys(questions)
    found: dict[str, float] = {}
    for line, value in zip(reply.text.split("\n"), reply.log_likelihoods, strict=True):
        with suppress(BrokenAnswer):
            found.setdefault(normalise(questions_of(Reply(line, False), text, 1)[0]), value)
    return {question: found.get(normalise(question)) for question in questions}


def as_line(answer: str, marked: bool) -> str:
    """The first line of an answer to a prompt for one question; `marked` as an item of a list, which is always one."""
    line = next((line for line in map(str.strip, answer.splitlines()) if line), "")
    return "- " * marked + _unmarked(line)


def _unmarked(line: str) -> str:
    mark = _MARK.match(line)
    return line[mark.end() :] if mark else line


def _lines(answer: str, cut: bool) -> Iterator[str]:
    """The lines that have the form of questions, without list marks."""
    if (items := _json_items(answer)) is not None:
        yield from items
        return
    lines = [line.strip() for line in re.split(r"\r\n|\r|\n", answer) if line.strip()]
    for place, line in enumerate(lines):
        bare = _unmarked(line)
        asks = bare.rstrip(_QUOTES).endswith(_ENDS)
        whole = not cut or place + 1 < len(lines)
        if asks or (bare != line and whole and not bare.endswith(":")):
            yield bare


def _json_items(answer: str) -> list[str] | None:
    """The texts of a JSON list, or of the only list in a JSON object; None for any other answer.

    An item may be an object with one text, such as `{"question": "…"}`.
    """
    try:
        content = json.loads(answer)
    except (ValueError, RecursionError):
        return None
    if isinstance(content, dict) and len(content) == 1:
        [content] = content.values()
    if not isinstance(content, list):
        return None
    items = [next(iter(item.values())) if isinstance(item, dict) and len(item) == 1 else item for item in content]
    return [item for item in items if isinstance(item, str)]


def _sound(line: str) -> str:
    """A line as a query, or "" if it cannot be one."""
    question = " ".join(line.strip(_QUOTES + "\t").split())
    sound = (
        len(question) <= MOST_CHARACTERS
        and any(character.isalpha() for character in question)
        and not _HARMFUL.search(line.replace("\t", " "))
        and is_unicode(question)
    )
    return question if sound else ""
