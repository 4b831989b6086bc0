"""What `stillhouse new` chooses for a source: the recipe, the passage length, and trainings that fit into memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from stillhouse.workflow.recipes import find_recipe, load_recipe

if TYPE_CHECKING:
    from stillhouse.corpus.first_look import FirstLook

AUTO = "auto"
LABELLED, UNLABELLED = "labelled", "unlabelled"
FITTED = (LABELLED, UNLABELLED)
"""The recipes that start from a retriever and whose passage length is set from the corpus."""
TOKENS_A_WORD = 1.35
"""Word pieces per word of ordinary text, with BERT's English vocabulary."""
SHORTEST, LONGEST, STEP = 64, 256, 32
"""The bounds and the step of the passage length, in tokens; all-MiniLM-L6-v2 was trained on up to 256."""

BYTES_A_TOKEN = 420 * 1024
"""What a training step keeps per token of its batch with the recipes' start, all-MiniLM-L6-v2, in fp32: 6.9 GiB were
measured for 128 passages of 128 tokens and their queries."""
MINI_BATCH = 32
"""Texts that are encoded together where a whole batch would take too much memory."""


def recipe_for(look: FirstLook | None) -> str:
    """The shipped recipe for a source, by whether it has training questions; without a look, it is assumed to have
    them."""
    return UNLABELLED if look is not None and not look.labelled else LABELLED


def passage_length(look: FirstLook) -> int:
    """The tokens that hold 95 % of the passages whole: a multiple of 32, within what the starting model reads well."""
    tokens = look.words * TOKENS_A_WORD + 2
    return int(min(LONGEST, max(SHORTEST, -(-tokens // STEP) * STEP)))


def whole_words(length: int) -> int:
    """About how many words a passage of `length` tokens has: a longer one is truncated."""
    return int((length - 2) / TOKENS_A_WORD)


def fitted(recipe: str, look: FirstLook | None, memory: int) -> Mapping[str, Mapping[str, Any]]:
    """The settings, by section, that `new` changes in the recipe that it chose, on a machine with `memory` bytes."""
    if recipe not in FITTED or look is None or not look.words:
        return {}
    length = passage_length(look)
    in_parts = {"gradient_cache": True, "mini_batch_size": MINI_BATCH}
    found: dict[str, dict[str, Any]] = {
        "fetch_model": {"passage_length": length},
        "validate": {"max_passage_words": whole_words(length)},
    }
    for name, section in load_recipe(find_recipe(recipe)).items():
        if "negatives_per_query" in section and "batch_size" in section:
            tokens = section["batch_size"] * (1 + section["negatives_per_query"]) * length
            if tokens * BYTES_A_TOKEN > memory / 2:
                found[name] = dict(in_parts)
    return found


def describe_parts(settings: Mapping[str, Mapping[str, Any]], memory: int) -> str:
    """A line on the trainings that compute a batch in parts; empty if none does."""
    names = [name for name, section in settings.items() if section.get("gradient_cache")]
    if not names:
        return ""
    return (
        f"with {memory / 2**30:.0f} GiB of memory, {', '.join(names)} compute a batch in parts: the same gradient, but "
        "a third slower (gradient_cache, mini_batch_size)"
    )


def describe(recipe: str, look: FirstLook) -> str:
    """One line on what was found and what follows from it."""
    number = f"{look.passages:,} passages" if look.whole else f"at least {look.passages:,} passages"
    questions = "training questions" if look.labelled else "no training questions"
    line = f"read as {look.format}: {number}, 95 % with at most {look.words} words, {questions}; recipe {recipe}"
    if recipe not in FITTED:
        return line
    return f"{line}, passages cut at {passage_length(look)} tokens; no pre-training: the start is already a retriever"
