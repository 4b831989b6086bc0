"""Turns feedback into train queries: pairs of a query and a passage that enough votes are for, and fewer against."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from stillhouse.corpus.cleaning import normalise

LEAST_VOTES = 3
FEW_VOTES = "a pair that too few votes are for"
AGAINST = "a pair that as many votes are against"


class Vote(NamedTuple):
    """`value` is 1 for the passage and -1 against it."""

    query: str
    passage_id: str
    value: int = 1


@dataclass(frozen=True)
class Chosen:
    """The accepted pairs, query text → passage ids, both sorted.

    `rejected` counts the rejected votes by reason.
    """

    pairs: Mapping[str, list[str]]
    votes: int
    rejected: Mapping[str, int]


def choose(votes: Iterable[Vote], least_votes: int = LEAST_VOTES) -> Chosen:
    """Chooses the pairs that the votes support. Queries count as equal if `normalise` makes them equal."""
    sides: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    forms: dict[str, Counter[str]] = defaultdict(Counter)
    for vote in votes:
        query = normalise(vote.query)
        sides[query, vote.passage_id][vote.value] += 1
        forms[query][vote.query] += 1
    pairs: dict[str, list[str]] = defaultdict(list)
    rejected: Counter[str] = Counter()
    for (query, passage_id), side in sorted(sides.items()):
        if side[1] < least_votes:
            rejected[FEW_VOTES] += side.total()
        elif side[1] <= side[-1]:
            rejected[AGAINST] += side.total()
        else:
            written = min(forms[query].items(), key=lambda form: (-form[1], form[0]))[0]
            pairs[written].append(passage_id)
    return Chosen(dict(pairs), sum(side.total() for side in sides.values()), dict(rejected))


def query_id(text: str) -> str:
    """The id of a query from feedback: the same text has the same id in every export."""
    return f"feedback:{sha256(normalise(text).encode()).hexdigest()[:16]}"
