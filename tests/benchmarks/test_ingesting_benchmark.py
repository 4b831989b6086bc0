"""The benchmark of the steps that see every passage, with some hundred passages: one row for each step and size."""

from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.long
def test_the_page_has_every_step_at_both_sizes_and_its_notes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import ingesting

    page = tmp_path / "ingesting.md"
    page.with_suffix(".notes.md").write_text("## What it says\n\nNothing.\n", encoding="utf-8")
    words = ["--folder", str(tmp_path / "build"), "--sizes", "100", "300", "--steps", "ingest", "validate"]
    assert ingesting.main([*words, "--page", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| `")
    ]
    assert [row[:2] for row in rows] == [[f"`{s}`", n] for s in ("ingest", "validate") for n in ("100", "300")]
    assert all(float(row[4]) > 0 for row in rows) and [row[7] == "" for row in rows] == [True, False] * 2
    assert text.endswith("Nothing.\n") and "--sizes 100 300 --steps ingest validate" in " ".join(text.split())
