"""Step `importance`: its files (docs/reference/formats.md) and pruning."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from token_folders import write_tokens

from stillhouse.core.artifacts import read_manifest
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.importance import STEP, Config


def importance(out: Path, tokens: Path, **settings: Any) -> Path:
    execute(STEP, Config(**settings), {"tokens": tokens}, {"importance": out})
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


def test_pruning(tmp_path: Path) -> None:
    # 2-grams: (2 4) twice, (4 2) once.
    tokens = write_tokens(tmp_path / "tokens", [[2, 4, 2, 4]])
    facts = read_manifest(importance(tmp_path / "importance", tokens, window=2, min_count=2)).facts
    assert facts["dropped_2_grams"] == round(1 / 3, 4)
