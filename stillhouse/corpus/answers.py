"""What an answer is: a text, or a regular expression, that a passage contains (the kinds of `answers.parquet`)."""

from __future__ import annotations

import unicodedata

import regex

TEXT = "text"
REGEX = "regex"
KINDS = (TEXT, REGEX)

FLAGS = regex.IGNORECASE | regex.UNICODE | regex.MULTILINE
"""The flags under which the DPR code reads a regular expression."""


def compile_answer(pattern: str) -> regex.Pattern[str]:
    """A regex answer made ready. Raises `ValueError` that says what is wrong with it."""
    try:
        return regex.compile(pattern, FLAGS)
    except Exception as error:  # beside regex.error, unusual patterns raise errors of many kinds
        raise ValueError(f"not a regular expression ({error})") from None


def answer_fault(text: str, kind: str) -> str:
    """Why an answer cannot be one, "" when it can."""
    if kind not in KINDS:
        return f"kind is not {' or '.join(KINDS)}"
    if not text.strip():
        return "empty answer"
    if kind == REGEX:
        try:
            compile_answer(text)
            compile_answer(unicodedata.normalize("NFD", text))  # what is searched for
        except ValueError as error:
            return str(error)
    return ""
