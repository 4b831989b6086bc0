"""Which of a model's questions are dropped, and why.

Every filter judges a question by itself, except the last, which compares the questions that the others keep. A question
that several would drop gets the first of their reasons.

Shape suffix: Q questions.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillhouse.corpus.cleaning import normalise
from stillhouse.corpus.query_generation import MadeQuery
from stillhouse.corpus.store import write_rows
from stillhouse.corpus.words import WORD

LOST = "not found again"
UNCLEAR = "unclear alone"
UNLIKELY = "unlikely"
ALIKE = "like another"
REASONS = {
    LOST: "no search found its passage again",
    UNCLEAR: "it makes sense only beside its passage",
    UNLIKELY: "the model that made it found it among the least likely",
    ALIKE: "another question has the same words",
}
"""The reasons in the order in which they are tried, and what they mean."""

_POINTING = re.compile(
    r"\b(?:this|these)\b"
    r"|\bthe (?:above|following|given|passage|text|paragraph|excerpt)\b"
    r"|^(?:\W*[\w-]+ ){0,4}?(?:is|are|was|were|did|do|does|has|have|had|can|could|will|would|should) (?:he|she|they)\b",
    re.IGNORECASE,
)
"""English words that point at a passage, or at somebody whom only the passage names."""


def reasons_to_drop(
    queries: Sequence[MadeQuery],
    terms: Sequence[Sequence[str]],
    found_Q: NDArray[np.bool_],
    unlikely_share: float,
) -> list[str]:
    """Why each question is dropped, one of `REASONS`; "" if it is kept. The order of the questions does not matter.

    `terms` are the questions' terms for a search by words. `found_Q` says whether a search found the passage again.
    """
    least = unlikely(queries, unlikely_share)
    reasons = []
    for query, found in zip(queries, found_Q.tolist(), strict=True):
        holds = {LOST: not found, UNCLEAR: points(query.text), UNLIKELY: query.id in least}
        reasons.append(next((reason for reason, held in holds.items() if held), ""))
    kept = [place for place, reason in enumerate(reasons) if not reason]
    for place in near_duplicates([queries[place] for place in kept], [terms[place] for place in kept]):
        reasons[kept[place]] = ALIKE
    return reasons


def points(text: str) -> bool:
    """Whether an English question points at something that only its passage names."""
    return _POINTING.search(text) is not None


def unlikely(queries: Sequence[MadeQuery], share: float) -> set[str]:
    """The ids of this share of the questions, the least likely of those whose likelihood is known."""
    known = sorted((query.log_likelihood, query.id) for query in queries if query.log_likelihood is not None)
    return {id for _, id in known[: int(share * len(known))]}


def near_duplicates(queries: Sequence[MadeQuery], terms: Sequence[Sequence[str]]) -> list[int]:
    """The places of questions that have the terms and single characters of another question, in any order.

    Of several about one passage, the first by id stays. If they are about different passages none does, since each
    has several right answers, or says too little.
    """
    groups = defaultdict(list)
    for place, (query, words) in enumerate(zip(queries, terms)):
        single = [word for word in WORD.findall(normalise(query.text)) if len(word) == 1]  # type 1 is not type 2
        groups[frozenset([*words, *single])].append(place)
    places = []
    for group in groups.values():
        group.sort(key=lambda place: queries[place].id)
        places += group[len({queries[place].row for place in group}) == 1 :]
    return places


def write_dropped(folder: Path, queries: Sequence[MadeQuery], reasons: Sequence[str]) -> None:
    """Writes the dropped questions as the table `dropped`."""
    dropped = [(query.id, query.text, query.passage_id, reason) for query, reason in zip(queries, reasons) if reason]
    write_rows(folder, "dropped", dropped)
