"""The random state of every training step equals that of `torch.manual_seed`, at lower cost."""

from __future__ import annotations

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
