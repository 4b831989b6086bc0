"""Turns clicks into train queries that no single person can manipulate.

A client has one vote on each pair of query and passage: the last one. A pair is accepted if enough clients are for it,
and more than are against it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from stillhouse.corpus.cleaning import normalise

LEAST_CLIENTS = 3
REPEATED = "an earlier vote of the client on the same pair"
FEW_CLIENTS = "a pair that too few clients are for"
AGAINST = "a pair that as many clients are against"


class Vote(NamedTuple):
    """`value` is 1 for the passage and -1 against it; `at` orders the votes."""

    query: str
    passage_id: str
    client: str
    value: int
    at: str


@dataclass(frozen=True)
class Chosen:
    """The accepted pairs, query text → passage ids, both sorted.

    `rejected` counts the rejected votes by reason.
    """

    pairs: Mapping[str, list[str]]
    votes: int
    rejected: Mapping[str, int]


def choose(votes: Iterable[Vote], least_clients: int = LEAST_CLIENTS) -> Chosen:
    """Chooses the pairs that the votes support. Queries count as equal if `normalise` makes them equal."""
    given = sorted(votes, key=lambda vote: (vote.at, vote))
    rejected: Counter[str] = Counter()
    last: dict[tuple[str, str, str], Vote] = {}
    for vote in given:
        key = (vote.client, normalise(vote.query), vote.passage_id)
        rejected[REPEATED] += key in last
        last.pop(key, None)
        last[key] = vote
    sides: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    forms: dict[str, Counter[str]] = defaultdict(Counter)
    for (_, query, passage_id), vote in last.items():
        sides[query, passage_id][vote.value] += 1
        forms[query][vote.query] += 1
    pairs: dict[str, list[str]] = defaultdict(list)
    for (query, passage_id), side in sorted(sides.items()):
        if side[1] < least_clients:
            rejected[FEW_CLIENTS] += side.total()
        elif side[1] <= side[-1]:
            rejected[AGAINST] += side.total()
        else:
            written = min(forms[query].items(), key=lambda form: (-form[1], form[0]))[0]
            pairs[written].append(passage_id)
    return Chosen(dict(pairs), len(given), {reason: count for reason, count in rejected.items() if count})


def query_id(text: str) -> str:
    """The id of a query from feedback: the same text has the same id in every export."""
    return f"feedback:{sha256(normalise(text).encode()).hexdigest()[:16]}"
