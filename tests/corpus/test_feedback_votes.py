"""Votes from clicks: enough of them make a train query, and votes against undo it."""

from __future__ import annotations

from stillhouse.corpus.feedback_votes import AGAINST, FEW_VOTES, Vote, choose, query_id


def test_a_pair_needs_enough_votes() -> None:
    chosen = choose([Vote("red bird", "p1")] * 3 + [Vote("red bird", "p2")] * 2)
    assert chosen.pairs == {"red bird": ["p1"]} and chosen.votes == 5
    assert chosen.rejected == {FEW_VOTES: 2}


def test_votes_against_undo_a_pair() -> None:
    votes = [Vote("q", "p")] * 3 + [Vote("q", "p", -1)] * 2
    assert choose(votes).pairs == {"q": ["p"]}
    undone = choose([*votes, Vote("q", "p", -1)])
    assert undone.pairs == {} and undone.rejected == {AGAINST: 6}


def test_spellings_of_a_query_that_differ_in_case_and_space_are_one() -> None:
    votes = [Vote(text, "p") for text in ("Red  Bird", "red bird", "red bird")]
    assert choose(votes).pairs == choose(votes[::-1]).pairs == {"red bird": ["p"]}
    assert query_id("Red  Bird") == query_id("red bird") != query_id("red birds")
