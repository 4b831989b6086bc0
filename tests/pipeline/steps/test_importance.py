"""Step `importance`: its files (docs/reference/formats.md), other passages' counts, pruning."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from token_folders import write_tokens

from stillhouse.core.artifacts import digest_files, read_manifest
from stillhouse.core.errors import InputError
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.importance import STEP, Config


def importance(out: Path, tokens: Path, counts: Path | None = None, **settings: Any) -> Path:
    inputs = {"tokens": tokens} | ({"counts": counts} if counts else {})
    execute(STEP, Config(**settings), inputs, {"importance": out})
    return out


def test_writes_counts_and_ami(tmp_path: Path) -> None:
    folder = importance(tmp_path / "importance", write_tokens(tmp_path / "tokens", [[3, 4], [3, 5]]), window=2)
    bigrams = np.load(folder / "ngrams_2.npy")
    assert bigrams["gram"].tolist() == [[3, 4], [3, 5]]
    assert bigrams["count"].tolist() == [1, 1]
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["ami.npy", "counts.json", "manifest.json", "ngrams_1.npy", "ngrams_2.npy"]
    # Both bigrams: log((1/2) / (1/2 * 1/4)) = log 4. Every token has a bigram on one side and none on the other.
    ami = np.load(folder / "ami.npy")
    assert ami.dtype == np.float32
    np.testing.assert_allclose(ami, math.log(4), rtol=1e-6)
    facts = read_manifest(folder).facts
    assert (facts["distinct_1_grams"], facts["distinct_2_grams"], facts["tokens"]) == (3, 2, 4)


ONE = [[2, 4, 2, 3, 8], [4, 2, 3]]
OTHER = [[2, 3, 8, 9, 5], [6], []]


def test_two_shards_score_as_one_corpus(tmp_path: Path) -> None:
    """One shard is counted, the second adds to it, and the first is scored by the sum without being counted again."""
    one, other = write_tokens(tmp_path / "one", ONE), write_tokens(tmp_path / "other", OTHER)
    whole = importance(tmp_path / "i_whole", write_tokens(tmp_path / "whole", ONE + OTHER))
    first = importance(tmp_path / "i_first", one)
    second = importance(tmp_path / "i_second", other, counts=first)
    again = importance(tmp_path / "i_again", one, counts=second, own=False)
    expected = digest_files(whole)
    for folder in (second, again):
        found = digest_files(folder)
        assert {name: found[name] for name in found if name != "ami.npy"} == {
            name: expected[name] for name in expected if name != "ami.npy"
        }
    ami = np.concatenate([np.load(again / "ami.npy"), np.load(second / "ami.npy")])
    np.testing.assert_array_equal(ami, np.load(whole / "ami.npy"))


def test_pruning(tmp_path: Path) -> None:
    # 2-grams: (2 4) twice, (4 2) once.
    tokens = write_tokens(tmp_path / "tokens", [[2, 4, 2, 4]])
    facts = read_manifest(importance(tmp_path / "importance", tokens, window=2, min_count=2)).facts
    assert facts["dropped_2_grams"] == round(1 / 3, 4)


def test_refuses_counts_of_another_tokenizer_and_no_counts(tmp_path: Path) -> None:
    counts = importance(tmp_path / "counts", write_tokens(tmp_path / "one", ONE, "a"))
    other = write_tokens(tmp_path / "other", ONE, "b")
    with pytest.raises(InputError, match="has tokenizer a, but this run has b"):
        importance(tmp_path / "importance", other, counts=counts)
    with pytest.raises(InputError, match=r"nothing to count: leave own at true, or give the input counts"):
        importance(tmp_path / "importance", other, own=False)
