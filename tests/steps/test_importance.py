"""Step `importance`: the files of docs/formats.md, and the corpus of tests/pretraining/test_pmi.py in miniature."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from stillhouse.artifacts import read_manifest, write_manifest
from stillhouse.steps.execute import execute
from stillhouse.steps.importance import STEP, Config


def test_writes_counts_and_ami(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STILLHOUSE_WORK", str(tmp_path / "work"))
    tokens = tmp_path / "tokens"
    tokens.mkdir()
    np.save(tokens / "ids.npy", np.array([3, 4, 3, 5], dtype=np.int32))
    np.save(tokens / "offsets.npy", np.array([0, 2, 4]))
    np.save(tokens / "word_starts.npy", np.array([True, False, True, True]))
    write_manifest(tokens, "tokenize", {}, {}, {})
    execute(STEP, Config(window=2), {"tokens": tokens}, {"importance": tmp_path / "importance"})
    bigrams = np.load(tmp_path / "importance" / "ngrams_2.npy")
    assert bigrams["gram"].tolist() == [[3, 4], [3, 5]]
    assert bigrams["count"].tolist() == [1, 1]
    assert sorted(path.name for path in (tmp_path / "importance").glob("*.npy")) == [
        "ami.npy",
        "ngrams_1.npy",
        "ngrams_2.npy",
    ]
    # Both bigrams: log((1/2) / (1/2 * 1/4)) = log 4; every token has one of them on one side and none on the other.
    ami = np.load(tmp_path / "importance" / "ami.npy")
    assert ami.dtype == np.float32
    np.testing.assert_allclose(ami, math.log(4), rtol=1e-6)
    facts = read_manifest(tmp_path / "importance").facts
    assert (facts["distinct_1_grams"], facts["distinct_2_grams"], facts["tokens"]) == (3, 2, 4)
