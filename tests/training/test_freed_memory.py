"""Freed memory is taken again while a block wants it, counted by the pages that the system had to fill."""

import ctypes
import resource

import pytest
import torch

from stillhouse.training.memory import freed_memory_kept

SIZE = 64 * 1024**2
PAGES = SIZE // resource.getpagesize()

pytestmark = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")


def pages_touched() -> int:
    """The pages that the system fills when a large array is made, written and freed.

    The least of some tries: what else was freed lies in the way of the first.
    """
    return min(_pages_touched() for _ in range(8))


def _pages_touched() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.empty(SIZE, dtype=torch.uint8).fill_(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.fixture(autouse=True)
def large_pages_off() -> None:
    if pages_touched() < PAGES // 2:
        pytest.skip("this system fills pages larger than those it tells")


def test_a_block_takes_what_it_freed_and_gives_it_back_at_its_end() -> None:
    with freed_memory_kept():
        assert pages_touched() < PAGES // 100
    assert pages_touched() > PAGES // 2


def test_a_block_within_a_block_does_not_end_the_outer_one() -> None:
    with freed_memory_kept():
        with freed_memory_kept():
            assert pages_touched() < PAGES // 100
        assert pages_touched() < PAGES // 100


def test_a_block_ends_by_an_error_too() -> None:
    with pytest.raises(KeyError), freed_memory_kept():
        raise KeyError
    assert pages_touched() > PAGES // 2
