"""Measuring a pre-training reads at most a tenth of what it trains on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stillhouse.core.config import build
from stillhouse.core.context import Context
from stillhouse.pipeline.steps.pretrain import Config
from stillhouse.pretraining.heldout import measured


@pytest.mark.parametrize(
    ("settings", "heldout", "examples", "steps", "every", "passages"),
    [
        # 1,000 steps of 64 passages allow 0.1 x 3 x 64,000 = 19,200 reads. A measurement of n <= 512 passages reads
        # 4 n (the loss, and three times for the signals), and 2 n + 32 are read at the end.
        ({}, 400, 64, 1000, 100, 400),  # 11 x 1,600 + 832 = 18,432
        ({}, 450, 64, 1000, 112, 450),  # 11 x 1,800 + 932 = 20,732 is too much, 10 x 1,800 + 932 = 18,932 is not
        # Beyond 512 passages one more adds a read to each and one at the end: 6 x (n + 1,536) + n + 544 = 7 n + 9,760.
        ({}, 4096, 64, 1000, 200, 1348),  # 7 x 1,348 + 9,760 = 19,196
        ({"signals": False}, 4096, 64, 1000, 200, 2665),  # 6 n + n + 544 = 19,199
        ({"signals": False, "eval_share": 0.5}, 4096, 64, 1000, 100, 4096),  # 12 x 4,096 + 544 = 49,696 <= 96,000
        ({"last_step": 500}, 400, 64, 1000, 100, 368),  # 9,600 allowed: 6 x 4 n + 2 n + 32 = 9,600
        ({"max_steps": 10}, 50, 8, 10, 10, 2),  # 24 allowed: 2 x 4 n + 3 n = 22
        ({"eval_steps": 7}, 4096, 8, 10, 7, 4096),
        ({"eval_share": None}, 4096, 8, 10, None, 4096),
        ({}, 4096, 8, 0, None, 4096),
    ],
)
def test_measurements_fit_into_a_tenth(
    settings: dict[str, Any], heldout: int, examples: int, steps: int, every: int | None, passages: int, tmp_path: Path
) -> None:
    rows = 3 * np.arange(heldout)
    chosen, eval_steps = measured(build(Config, settings, "x"), rows, examples, steps, Context(tmp_path, quiet=True))
    assert (eval_steps, len(chosen)) == (every, passages)
    assert len(np.unique(chosen)) == passages and set(chosen) <= set(rows)
