"""The GPU benchmarks, tried on the CPU: they check their results and say what they measure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
SMALL = ["--passages", "3000", "--width", "16", "--queries", "20", "--depth", "10", "--rounds", "1"]


def test_the_page_has_the_search_and_its_share(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import gpu_search

    page = tmp_path / "gpu_search.md"
    assert gpu_search.main([*SMALL, "--device", "cpu", "--page", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    words = " ".join(text.split())
    assert "20 queries over 3,000 vectors of width 16" in words and " ".join(SMALL) in words
    [row] = [line for line in text.splitlines() if line.startswith("| PyTorch")]
    assert row.endswith("% |")


def test_the_page_has_a_row_for_each_size_of_batches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import gpu_encoding

    page = tmp_path / "gpu_encoding.md"
    small = ["--passages", "300", "--words", "9", "--layers", "1", "--width", "32"]
    assert gpu_encoding.main([*small, "--batch-tokens", "512", "2048", "--page", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith(("| 512", "| 2,048"))]
    assert len(rows) == 2 and "300 passages of" in text and " ".join(small) in text


@pytest.mark.parametrize("mistake", ["another passage", "a passage twice"])
def test_a_wrong_ranking_is_detected(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import gpu_search

    vectors, queries = (gpu_search.sample(count, 16, torch.device("cpu")) for count in (500, 8))
    rows = gpu_search.by_torch(queries, vectors, 10)
    gpu_search.check(rows, queries, vectors)
    wrong = rows.copy()
    wrong[0, 9] = rows[0, 8] if mistake == "a passage twice" else np.setdiff1d(np.arange(500), rows[0])[0]
    with pytest.raises(AssertionError, match="stands twice" if mistake == "a passage twice" else "was not found"):
        gpu_search.check(wrong, queries, vectors)
