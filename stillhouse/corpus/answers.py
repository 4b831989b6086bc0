"""The kinds of answers in `answers.parquet`: a text that a passage contains, or a regular expression it matches."""

import unicodedata

import regex

TEXT = "text"
REGEX = "regex"
KINDS = (TEXT, REGEX)

FLAGS = regex.IGNORECASE | regex.UNICODE | regex.MULTILINE
"""The flags with which the DPR code compiles a regular expression."""


def compile_answer(pattern: str) -> regex.Pattern[str]:
    """Compiles a regex answer. Raises `ValueError` that says what is wrong with it."""
    try:
        return regex.compile(pattern, FLAGS)
    except Exception as error:  # unusual patterns raise other errors than regex.error
        raise ValueError(f"not a regular expression ({error})") from None


def answer_fault(text: str, kind: str) -> str:
    """Why an answer is invalid, or "" if it is valid."""
    if kind not in KINDS:
        return f"kind is not {' or '.join(KINDS)}"
    if not text.strip():
        return "empty answer"
    if kind == REGEX:
        try:
            compile_answer(text)
            compile_answer(unicodedata.normalize("NFD", text))  # the form that is searched for
        except ValueError as error:
            return str(error)
    return ""
