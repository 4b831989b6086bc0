"""Turns clicks into train queries that no single person can manipulate.

A client has one vote on each pair of query and passage: the last one. No client has more than a fixed share of the
counted votes. A pair is accepted if enough clients are for it, and more than are against it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from stillhouse.corpus.cleaning import normalise

MOST_SHARE, LEAST_CLIENTS = 0.1, 3
REPEATED = "an earlier vote of the client on the same pair"
OVER_SHARE = "beyond the client's share of the votes"
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


def choose(votes: Iterable[Vote], most_share: float = MOST_SHARE, least_clients: int = LEAST_CLIENTS) -> Chosen:
    """Chooses the pairs that the votes support. Queries count as equal if `normalise` makes them equal."""
    given = sorted(votes, key=lambda vote: (vote.at, vote))
    rejected: Counter[str] = Counter()
    last: dict[tuple[str, str, str], Vote] = {}
    for vote in given:
        key = (vote.client, normalise(vote.query), vote.passage_id)
        rejected[REPEATED] += key in last
        last.pop(key, None)
        last[key] = vote
    most = votes_a_client(Counter(client for client, _, _ in last), most_share)
    used: Counter[str] = Counter()
    sides: dict[tuple[str, str], Counter[int]] = defaultdict(Counter)
    forms: dict[str, Counter[str]] = defaultdict(Counter)
    for (client, query, passage_id), vote in last.items():
        used[client] += 1
        if used[client] > most:
            rejected[OVER_SHARE] += 1
            continue
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


def votes_a_client(votes: Mapping[str, int], most_share: float) -> int:
    """The number of votes per client that count, so that none has more than `most_share` of them; at least one.

    The largest c with c ≤ `most_share` · Σ min(votes, c). Votes that a client casts beyond c do not raise it.
    """
    counts = sorted(votes.values(), reverse=True)
    for most in range(max(counts, default=1), 1, -1):
        if most <= most_share * sum(min(count, most) for count in counts):
            return most
    return 1


def query_id(text: str) -> str:
    """The id of a query from feedback: the same text has the same id in every export."""
    return f"feedback:{sha256(normalise(text).encode()).hexdigest()[:16]}"
