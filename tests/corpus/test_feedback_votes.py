"""Votes from clicks: one client cannot make a train query."""

from __future__ import annotations

import pytest

from stillhouse.corpus.feedback_votes import (
    AGAINST,
    FEW_CLIENTS,
    REPEATED,
    Vote,
    choose,
    query_id,
)


def vote(query: str, passage: str, client: str, value: int = 1, at: int = 0) -> Vote:
    return Vote(query, passage, client, value, f"2026-01-01T00:{at:02}:00")


def test_a_pair_needs_enough_clients() -> None:
    votes = [vote("red bird", "p1", client) for client in "abc"] + [vote("red bird", "p2", client) for client in "ab"]
    chosen = choose(votes)
    assert chosen.pairs == {"red bird": ["p1"]}
    assert chosen.rejected == {FEW_CLIENTS: 2}


def test_one_client_who_clicks_without_end_adds_nothing() -> None:
    honest = [vote(f"query {n}", f"p{n}", f"user{m}", at=n) for n in range(10) for m in range(20)]
    flood = [vote(f"bad {n}", "poison", "attacker", at=n % 60) for n in range(5_000)]
    repeats = [vote("query 1", "poison", "attacker", at=30)] * 50
    chosen = choose([*honest, *flood, *repeats])
    assert chosen.pairs == choose(honest).pairs == {f"query {n}": [f"p{n}"] for n in range(10)}
    assert chosen.rejected[REPEATED] == 49
    assert chosen.rejected[FEW_CLIENTS] == 5_001


def test_a_client_s_last_vote_counts_and_votes_against_undo_a_pair() -> None:
    votes = [vote("q", "p", client, at=1) for client in "abc"]
    assert choose([*votes, vote("q", "p", "c", -1, at=2)], 2).pairs == {"q": ["p"]}
    against = [vote("q", "p", client, -1, at=2) for client in "xyz"]
    undone = choose([*votes, *against])
    assert undone.pairs == {} and undone.rejected == {AGAINST: 6}


def test_spellings_of_a_query_that_differ_in_case_and_space_are_one() -> None:
    votes = [vote(text, "p", client) for text, client in (("Red  Bird", "a"), ("red bird", "b"), ("red bird", "c"))]
    assert choose(votes).pairs == {"red bird": ["p"]}
    assert query_id("Red  Bird") == query_id("red bird") != query_id("red birds")


@pytest.mark.parametrize("order", [1, -1])
def test_the_order_in_which_votes_are_given_does_not_matter(order: int) -> None:
    votes = [vote(f"q{n % 7}", f"p{n % 3}", f"u{n % 5}", 1 - 2 * (n % 11 == 0), n % 60) for n in range(200)]
    assert choose(votes[::order]) == choose(votes)
