"""The functions that `make fuzz` feeds take what they begin with: a fuzzer that stops there has looked at nothing."""

from __future__ import annotations

import importlib.util

import pytest
from fuzz_targets import SEEDS, reader


@pytest.mark.parametrize("name", SEEDS)
def test_a_whole_source_is_read(name: str) -> None:
    if name == "html-tree" and importlib.util.find_spec("lxml") is None:
        pytest.skip("lxml is not installed")
    for seed in SEEDS[name]:
        reader(name)(seed)


def test_what_no_reader_may_raise_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given: object) -> None:
        raise KeyError("a row")

    monkeypatch.setattr("fuzz_targets.ingest_source", broken)
    with pytest.raises(KeyError):
        reader("beir")(SEEDS["beir"][0])
