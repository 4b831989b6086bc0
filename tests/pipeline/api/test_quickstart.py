"""The Python of README.md, docs/quickstart.md and the notebook runs as written, with a smaller model and corpus."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stillhouse

pytestmark = pytest.mark.usefixtures("here")
ROOT = Path(__file__).resolve().parent.parent.parent.parent
SMALL: dict[str, dict[str, Any]] = {
    "ingest": {"max_articles": 11},
    "fetch_model": {"layers": 2, "query_length": 16, "passage_length": 32},
    "mine": {"negatives_depth": 3},
    "train_retriever": {"max_steps": 1, "batch_size": 4, "eval_steps": 100},
    "train_reranker": {"max_steps": 1, "max_length": 48, "eval_steps": 100},
    "score_pairs": {"depth": 3},
}


def smaller(function: Callable[..., Any], settings: dict[str, Any]) -> Callable[..., Any]:
    return lambda *folders, **given: function(*folders, **(given | settings))


def blocks_of(page: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)


def test_blocks_of_python_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, settings in SMALL.items():
        monkeypatch.setattr(stillhouse, name, smaller(getattr(stillhouse, name), settings))
    blocks = blocks_of("docs/quickstart.md")
    assert blocks_of("README.md") == blocks[:1]  # so the block of the README runs too
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/quickstart.md", "exec"), names)
    figures, hits = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"\{'trained': \{.*'RR@10': [01]\.\d+.*\}\}", figures)
    assert hits.startswith("[Hit(rank=1, ") and hits.count("Hit(") == 3
    assert (names["distilled"].folder / "model.safetensors").is_file()


def test_the_notebook_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = json.loads((ROOT / "examples" / "quickstart.ipynb").read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names: dict[str, Any] = {}
    monkeypatch.setattr(stillhouse, "train_retriever", smaller(stillhouse.train_retriever, SMALL["train_retriever"]))
    for cell in cells:
        exec(compile("".join(cell["source"]), f"cell {cell['id']}", "exec"), names)
        if "parameters" in cell["metadata"].get("tags", ()):
            names |= {"max_articles": 11, "layers": 2, "passage_length": 32, "max_steps": 1}
    assert list(names["evaluation"].figures) == ["bm25", "start", "trained", "both"]
    assert [hit.rank for hit in names["hits"]] == [1, 2, 3]
    assert names["asked"].shape == (2, 384)
