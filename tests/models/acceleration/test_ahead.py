"""Batches made ahead equal those made in turn, and at most one step is made ahead."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest

from stillhouse.models.acceleration.batches import Ahead, Behind
from stillhouse.models.encoder import BiEncoder


class Slow:
    """Squares numbers, and records which numbers it squares and in which threads."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.threads: set[int] = set()
        self.next_begun = {number: threading.Event() for number in range(10)}

    def __call__(self, number: int) -> int:
        self.begun.append(number)
        self.threads.add(threading.get_ident())
        self.next_begun[number].set()
        return number * number


def test_the_next_item_is_prepared_ahead_but_none_past_the_end() -> None:
    made = Slow()
    with Ahead(made, 5) as ahead:
        for number in range(2, 5):
            assert ahead(number) == number * number
            if number < 4:
                assert made.next_begun[number + 1].wait(60), "the next one is not made before it is asked for"
    assert made.begun == [2, 3, 4]
    assert len(made.threads) == 1 and threading.get_ident() not in made.threads


def test_an_error_is_raised_when_its_item_is_requested() -> None:
    def make(number: int) -> int:
        if number == 1:
            raise ValueError("the second")
        return number

    with Ahead(make, 3) as ahead:
        assert ahead(0) == 0
        with pytest.raises(ValueError, match="the second"):
            ahead(1)
        assert ahead(2) == 2


def test_two_threads_truncate_texts_at_different_lengths(tiny_model: Path) -> None:
    """A tokenizer is not thread-safe: it could fail, or truncate one thread's texts at the other's length."""
    encoder = BiEncoder.load(tiny_model)
    texts = ["the red bird sings in the house " * 20] * 64

    def lengths(most: int) -> set[int]:
        own = copy(encoder)
        own.settings = replace(encoder.settings, query_length=most)
        return {len(ids) for _ in range(30) for ids in own.queries(texts).ids}

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lengths, (8, 16, 24, 32))) == [{8}, {16}, {24}, {32}]


def test_one_item_is_written_behind_and_all_are_written_at_the_end() -> None:
    written: list[int] = []
    free = threading.Event()

    def write(number: int) -> None:
        free.wait(60)
        written.append(number)

    with Behind() as behind:
        behind(write, 0)
        assert not written, "the caller waits for the first"
        free.set()
        behind(write, 1)
        assert written[:1] == [0]
    assert written == [0, 1]


@pytest.mark.parametrize("later", [0, 1])
def test_what_fails_behind_is_raised(later: int) -> None:
    """By the next call or at the end, and nothing is written after it."""
    written: list[int] = []

    def write(number: int) -> None:
        if number == 0:
            raise OSError("the disk is full")
        written.append(number)

    with pytest.raises(OSError, match="the disk is full"), Behind() as behind:
        for number in range(later + 1):
            behind(write, number)
    assert not written
