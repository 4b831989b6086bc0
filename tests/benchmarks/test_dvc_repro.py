"""The benchmark of imports under DVC: the page shows both ways, and different retrievers are an error."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.parametrize("weights", [("same", "same"), ("one", "other")])
def test_both_ways_are_run_and_compared(
    weights: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import dvc_repro

    def repro(recipe: str, folder: Path, preload: str) -> float:
        retriever = folder / "artifacts" / "best" / "retriever"
        retriever.mkdir(parents=True)
        (retriever / "weights").write_text(weights[int(preload)])
        return {"0": 200.0, "1": 50.0}[preload]

    monkeypatch.setattr(dvc_repro, "repro", repro)
    page = tmp_path / "page.md"
    code = dvc_repro.main(["--folder", str(tmp_path / "runs"), "--page", str(page)])
    assert code == (0 if weights[0] == weights[1] else 1)
    assert page.is_file() == (code == 0)
    if code == 0:
        assert "| `micro` | 32 | 200 | 50 | 75% |" in page.read_text()
