"""The targets of `make fuzz` accept their seeds, as a fuzzer that stops there tests nothing."""

from __future__ import annotations

import pytest
from fuzz_targets import SEEDS, reader


@pytest.mark.parametrize("name", SEEDS)
def test_a_whole_source_is_read(name: str) -> None:
    for seed in SEEDS[name]:
        reader(name)(seed)
