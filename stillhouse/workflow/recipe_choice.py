"""Which recipe `stillhouse new` takes for a source, and how long its passages are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stillhouse.corpus.first_look import FirstLook

AUTO = "auto"
LABELLED, UNLABELLED = "labelled", "unlabelled"
FITTED = (LABELLED, UNLABELLED)
"""The recipes whose passage length is set by the corpus."""
TOKENS_A_WORD = 1.35
"""Word pieces of BERT's English vocabulary for a word of ordinary text."""
SHORTEST, LONGEST, STEP = 64, 256, 32
"""Tokens of a passage that are read, at least and at most; all-MiniLM-L6-v2 was trained on up to 256."""


def recipe_for(look: FirstLook | None) -> str:
    """The shipped recipe for a source, by whether it has training questions; one that nobody looked at has them."""
    return UNLABELLED if look is not None and not look.labelled else LABELLED


def passage_length(look: FirstLook) -> int:
    """The tokens that hold 95 % of the passages, a multiple of 32 within what the start reads well."""
    tokens = look.words * TOKENS_A_WORD + 2
    return int(min(LONGEST, max(SHORTEST, -(-tokens // STEP) * STEP)))


def fitted(recipe: str, look: FirstLook | None) -> Mapping[str, Mapping[str, Any]]:
    """The settings, by section, that `new` changes in a recipe of its choice."""
    if recipe not in FITTED or look is None or not look.words:
        return {}
    return {"fetch_model": {"passage_length": passage_length(look)}}


def describe(recipe: str, look: FirstLook) -> str:
    """A line on what was seen and what follows from it."""
    number = f"{look.passages:,} passages" if look.whole else f"at least {look.passages:,} passages"
    questions = "training questions" if look.labelled else "no training questions"
    line = f"read as {look.format}: {number}, 95 % of them of at most {look.words} words, {questions}; recipe {recipe}"
    return line + (f", passages cut at {passage_length(look)} tokens" if recipe in FITTED else "")
