"""Votes from clicks: one client cannot make a train query, and counts for at most its share."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillhouse.corpus.feedback_votes import (
    AGAINST,
    FEW_CLIENTS,
    OVER_SHARE,
    REPEATED,
    Vote,
    choose,
    query_id,
    votes_a_client,
)


def vote(query: str, passage: str, client: str, value: int = 1, at: int = 0) -> Vote:
    return Vote(query, passage, client, value, f"2026-01-01T00:{at:02}:00")


def test_a_pair_needs_enough_clients() -> None:
    votes = [vote("red bird", "p1", client) for client in "abc"] + [vote("red bird", "p2", client) for client in "ab"]
    chosen = choose(votes, most_share=1.0)
    assert chosen.pairs == {"red bird": ["p1"]}
    assert chosen.rejected == {FEW_CLIENTS: 2}


def test_one_client_who_clicks_without_end_adds_nothing() -> None:
    honest = [vote(f"query {n}", f"p{n}", f"user{m}", at=n) for n in range(10) for m in range(20)]
    flood = [vote(f"bad {n}", "poison", "attacker", at=n % 60) for n in range(5_000)]
    repeats = [vote("query 1", "poison", "attacker", at=30)] * 50
    chosen = choose([*honest, *flood, *repeats])
    assert chosen.pairs == choose(honest).pairs == {f"query {n}": [f"p{n}"] for n in range(10)}
    assert chosen.rejected[REPEATED] == 49
    assert chosen.rejected[OVER_SHARE] + chosen.rejected[FEW_CLIENTS] == 5_001


def test_colluding_clients_are_limited_by_number_and_share() -> None:
    honest = [vote(f"query {n}", f"p{n}", f"user{m}", at=n) for n in range(5) for m in range(12)]
    two = [vote("bad", "poison", f"attacker{m}") for m in range(2)]
    assert "bad" not in choose([*honest, *two]).pairs
    many = [vote(f"bad {n}", "poison", f"attacker{m}", at=n) for n in range(40) for m in range(3)]
    taken = choose([*honest, *many]).pairs
    # 12 honest clients have 5 votes each. c = 0.1 · (60 + 3 c) gives 8, so attackers keep 8 of 40 queries.
    assert sum(text.startswith("bad") for text in taken) == 8


def test_a_client_s_last_vote_counts_and_votes_against_undo_a_pair() -> None:
    votes = [vote("q", "p", client, at=1) for client in "abc"]
    assert choose([*votes, vote("q", "p", "c", -1, at=2)], 1.0, 2).pairs == {"q": ["p"]}
    against = [vote("q", "p", client, -1, at=2) for client in "xyz"]
    undone = choose([*votes, *against], 1.0)
    assert undone.pairs == {} and undone.rejected == {AGAINST: 6}


def test_spellings_of_a_query_that_differ_in_case_and_space_are_one() -> None:
    votes = [vote(text, "p", client) for text, client in (("Red  Bird", "a"), ("red bird", "b"), ("red bird", "c"))]
    assert choose(votes, 1.0).pairs == {"red bird": ["p"]}
    assert query_id("Red  Bird") == query_id("red bird") != query_id("red birds")


@given(st.lists(st.integers(1, 60), min_size=1, max_size=25), st.floats(0.02, 1))
def test_no_client_exceeds_the_share(counts: list[int], share: float) -> None:
    """Compare with a search over every possible number of votes."""
    most = votes_a_client(Counter({str(n): count for n, count in enumerate(counts)}), share)
    fits = [c for c in range(1, max(counts) + 1) if c <= share * sum(min(count, c) for count in counts)]
    assert most == max(fits, default=1)


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_in_which_votes_are_given_does_not_matter(order: int) -> None:
    votes = [vote(f"q{n % 7}", f"p{n % 3}", f"u{n % 5}", 1 - 2 * (n % 11 == 0), n % 60) for n in range(200)]
    assert choose(votes[::order], 0.3) == choose(votes, 0.3)
