"""The random state of every training step equals that of `torch.manual_seed`, at lower cost."""

from __future__ import annotations

import traceback

import pytest
import torch

from stillhouse.training.random_state import seed_torch


@pytest.mark.parametrize("seed", [0, 42, 42 * 1_000_003 + 7, 2**63 - 1])
def test_the_numbers_are_those_of_torch(seed: int) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        expected = torch.rand(5), torch.get_rng_state()
        seed_torch(seed)
        assert torch.equal(torch.rand(5), expected[0]) and torch.equal(torch.get_rng_state(), expected[1])


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU may have begun")
def test_no_call_stack_is_formatted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> list[str]:
        raise AssertionError

    monkeypatch.setattr(traceback, "format_stack", refuse)
    with pytest.raises(AssertionError):
        torch.manual_seed(0)
    seed_torch(0)
