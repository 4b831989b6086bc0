"""The page of `mixed_indexes.py`: means and paired differences to the old queries in the old index."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def test_the_page_compares_every_mixture_with_the_old_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worked out by hand: half of the index raises the mean of four questions from 0.5 to 0.75."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    from mixed_indexes import SHARES, WEIGHTS, page_lines

    new: dict[str, list[float]] = {str(share): [0.5] * 4 for share in SHARES}
    new["0.5"] = [0.5, 0.5, 1.0, 1.0]
    ratios = {str(share): 0.98 for share in SHARES}
    constrained = {name: [1.0] * 4 for name in new}
    of: dict[str, Any] = {
        "values": {"old": {"0.0": [0.5] * 4}} | {line: new if line == "fine_tune" else constrained for line in WEIGHTS},
        "ratios": dict.fromkeys(WEIGHTS, ratios),
        "passages": 1000,
        "questions": {"train": 20, "dev": 5, "test": 4},
        "machine": "Machine: one.",
    }
    page = page_lines({"scifact": of})
    assert "1,000 passages; 20 train, 5 dev, 4 test questions. Old queries in the old index: 0.500." in page
    [half] = [line for line in page if line.startswith("| `fine_tune` | 50% ")]
    assert half.startswith("| `fine_tune` | 50% | 0.750 | +0.250 | ") and half.endswith("| 0.980 |")
    [whole] = [line for line in page if line.startswith("| `compatible, 1` | 100% ")]
    assert "| 1.000 | +0.500 | +0.500 to +0.500 | 0.1" in whole, "of 16 flips two are as far"
