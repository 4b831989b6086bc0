"""The recipe that `stillhouse new` chooses for a source, and the passage length that it sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stillhouse.corpus.first_look import FirstLook

AUTO = "auto"
LABELLED, UNLABELLED = "labelled", "unlabelled"
FITTED = (LABELLED, UNLABELLED)
"""The recipes whose passage length is set from the corpus."""
TOKENS_A_WORD = 1.35
"""Word pieces per word of ordinary text, with BERT's English vocabulary."""
SHORTEST, LONGEST, STEP = 64, 256, 32
"""The bounds and the step of the passage length, in tokens; all-MiniLM-L6-v2 was trained on up to 256."""


def recipe_for(look: FirstLook | None) -> str:
    """The shipped recipe for a source, by whether it has training questions; without a look, it is assumed to have
    them."""
    return UNLABELLED if look is not None and not look.labelled else LABELLED


def passage_length(look: FirstLook) -> int:
    """The tokens that hold 95 % of the passages whole: a multiple of 32, within what the starting model reads well."""
    tokens = look.words * TOKENS_A_WORD + 2
    return int(min(LONGEST, max(SHORTEST, -(-tokens // STEP) * STEP)))


def fitted(recipe: str, look: FirstLook | None) -> Mapping[str, Mapping[str, Any]]:
    """The settings, by section, that `new` changes in the recipe that it chose."""
    if recipe not in FITTED or look is None or not look.words:
        return {}
    return {"fetch_model": {"passage_length": passage_length(look)}}


def describe(recipe: str, look: FirstLook) -> str:
    """One line on what was found and what follows from it."""
    number = f"{look.passages:,} passages" if look.whole else f"at least {look.passages:,} passages"
    questions = "training questions" if look.labelled else "no training questions"
    line = f"read as {look.format}: {number}, 95 % with at most {look.words} words, {questions}; recipe {recipe}"
    return line + (f", passages cut at {passage_length(look)} tokens" if recipe in FITTED else "")
