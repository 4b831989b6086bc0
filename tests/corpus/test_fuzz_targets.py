"""The targets of `make fuzz` accept their seeds, as a fuzzer that stops there tests nothing."""

from __future__ import annotations

import pytest
from fuzz_targets import SEEDS, reader
from sources_to_damage import needs_parser


@pytest.mark.parametrize("name", SEEDS)
def test_a_whole_source_is_read(name: str) -> None:
    needs_parser(name)
    for seed in SEEDS[name]:
        reader(name)(seed)
