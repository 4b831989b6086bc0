"""The questions in a model's answer, which was asked for one on each line and may have written anything.

A line is a question where it ends in a question mark, or is an item of a list: numbered, with a bullet, or in JSON. So
neither "Here are three questions:" nor an apology becomes one. What is left out: a line with control characters or
marks that turn the direction of writing, one that is too long, one without a letter, one that only repeats the
passage, and one that says what an earlier one says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from stillhouse.corpus.chat_api import BrokenAnswer, Reply
from stillhouse.corpus.cleaning import normalise
from stillhouse.corpus.sources.text_encoding import is_unicode
from stillhouse.terminal import CONTROL, DIRECTION

MOST_CHARACTERS = 300
"""A longer line is no question that a person would type."""
MOST_ANSWERED = 20_000
"""An answer of more characters did not keep to what it was asked."""
_THOUGHTS = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
"""What reasoning models write before their answer."""
_FENCE = re.compile(r"^\s*```\w*\s*$", re.MULTILINE)
_MARK = re.compile(r"(?:[*_\"'“]*\(?(?:[Qq](?:uestion)?\s?\d{0,3}|\d{1,3})\s?[.):]|[-*•–])(?:\s+|(?=[^\s\d]))")
"""What stands before an item of a list: `1.`, `(2)`, `**3:**`, `Q4:`, a bullet; not the `3.` of `3.5 million`."""
_QUOTES = "\"'`“”„‘’«»*_ "
_ENDS = ("?", "？", "؟", "⸮", "՞", "፧")
"""Question marks of many scripts."""
_HARMFUL = re.compile(f"[{CONTROL}{DIRECTION}]")


def questions_of(reply: Reply, text: str, number: int) -> list[str]:
    """The first `number` questions of an answer about a passage's `text`. Raises `BrokenAnswer` where there is none."""
    answer = _FENCE.sub("", _THOUGHTS.sub("", reply.text))
    if len(answer) > MOST_ANSWERED:
        raise BrokenAnswer(f"an answer of {len(answer):,} characters")
    found: dict[str, str] = {normalise(text): ""}
    for line in _lines(answer, reply.cut):
        if question := _sound(line):
            found.setdefault(normalise(question), question)
    questions = [question for question in found.values() if question]
    if not questions:
        raise BrokenAnswer("the answer is no list of questions")
    return questions[:number]


def _lines(answer: str, cut: bool) -> Iterator[str]:
    """The lines that are questions by their form, without what marks them as such."""
    if (items := _json_items(answer)) is not None:
        yield from items
        return
    lines = [line.strip() for line in re.split(r"\r\n|\r|\n", answer) if line.strip()]
    for place, line in enumerate(lines):
        bare = _MARK.sub("", line, count=1) if _MARK.match(line) else line
        asks = bare.rstrip(_QUOTES).endswith(_ENDS)
        whole = not cut or place + 1 < len(lines)
        if asks or (bare != line and whole and not bare.endswith(":")):
            yield bare


def _json_items(answer: str) -> list[str] | None:
    """The texts of a list in JSON, or of the one list in an object; None for an answer that is neither.

    An item may be an object of one text, as `{"question": "…"}`.
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
    """A line as a query; "" for one that cannot be one."""
    question = " ".join(line.strip(_QUOTES + "\t").split())
    sound = (
        len(question) <= MOST_CHARACTERS
        and any(character.isalpha() for character in question)
        and not _HARMFUL.search(line.replace("\t", " "))
        and is_unicode(question)
    )
    return question if sound else ""
