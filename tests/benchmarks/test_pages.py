"""Pages of benchmarks: by hand, and from the figures that are kept."""

from __future__ import annotations

import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
SYSTEMS = ("bm25", "start", "start + bm25", "sentence-transformers", "sentence-transformers + bm25", "winner")


def run(ranks: dict[str, float]) -> dict[str, Any]:
    """A run on two questions: each system has its value on both, in nDCG@10 half of it."""
    values = {measure: {name: [ranks[name] * of] * 2 for name in SYSTEMS} for measure, of in MEASURES.items()}
    counts = {"passages": 50, "articles": 40, "queries": {"train": 300, "dev": 9, "test": 2}, "seconds": 120.0}
    return counts | {"winner": "distilled", "machine": "Machine: one.", "values": values}


MEASURES = {"RR@10": 1.0, "nDCG@10": 0.5}
ONE = run(dict(zip(SYSTEMS, (0.5, 0.2, 0.4, 0.3, 0.6, 0.8))))
OTHER = run(dict(zip(SYSTEMS, (0.5, 0.2, 0.4, 0.5, 0.6, 0.6))))


def test_a_page_of_quality_has_the_means_over_seeds() -> None:
    page = import_module("benchmarks.quality_page")
    text = "\n".join(page.page_lines({"scifact-1": ONE, "scifact-2": OTHER}))
    row = "0.500 / 0.250 | 0.200 / 0.100 | 0.400 / 0.200 | **0.700 / 0.350** | 0.400 / 0.200 | 0.600 / 0.300"
    assert f"| SciFact, 300 | 2 | {row} |" in text
    assert "| winner − start + bm25 | +0.150 [+0.150, +0.150] | +0.300 [+0.300, +0.300] |" in text
    assert text.count("+0.400, +0.200 |") == 1, "each seed's difference"


def test_without_labels_the_winner_is_compared_with_the_better_of_bm25_and_both() -> None:
    short = import_module("benchmarks.no_labels")._in_short([ONE, OTHER])
    assert (
        np.allclose(np.array(short["means"])[:, -1], [0.35, 0.7]) and short["questions"] == 2 and short["minutes"] == 2
    )
    # nDCG@10 and then RR@10, over base + BM25, over BM25, which is better, and over sentence-transformers with BM25
    assert np.allclose([one[0] for one in short["apart"]], [0.15, 0.1, 0.05, 0.3, 0.2, 0.1])


@pytest.mark.parametrize("name", ["quality", "no_labels", "releases", "serving"])
def test_a_page_says_what_the_kept_figures_do(name: str, tmp_path: Path) -> None:
    pages, lines = import_module("benchmarks.page"), import_module(f"benchmarks.{name}").page_lines
    again = tmp_path / f"{name}.md"
    for suffix in (".measured.json", ".notes.md"):
        shutil.copyfile(ROOT / "benchmarks" / f"{name}{suffix}", again.with_suffix(suffix))
    pages.write_page(again, lines(pages.read_kept(pages.kept_beside(again))))
    assert again.read_text(encoding="utf-8") == (ROOT / "benchmarks" / again.name).read_text(encoding="utf-8")
