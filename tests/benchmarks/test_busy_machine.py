"""The benchmark of a busy machine: each way of waiting gets its environment, and the page has medians and ratios."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


def test_the_page_has_the_medians_of_every_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(FOLDER))
    import busy_machine

    turns = iter([10, 90, 10, 15, 12, 14, 10, 70, 12, 18, 12, 15, 13, 80, 11, 30, 12, 16])
    given: list[dict[str, str]] = []

    def run_alone(script: Path, words: Sequence[str], **environment: str) -> dict[str, float]:
        given.append(environment)
        return {"seconds": next(turns)}

    monkeypatch.setattr(busy_machine, "run_alone", run_alone)
    monkeypatch.setattr(busy_machine, "prepare", lambda folder: None)
    page = tmp_path / "page.md"
    assert busy_machine.main(["--rounds", "3", "--page", str(page)]) == 0
    assert given[:6] == [{}, {}, *[{"GOMP_SPINCOUNT": "3000"}] * 2, *[{"OMP_WAIT_POLICY": "passive"}] * 2]
    rows = [line for line in page.read_text().splitlines() if line.startswith("| ")][1:]
    assert [row.rpartition(" | ")[0].split(" | ")[1:] for row in rows] == [
        ["10.0", "80.0"],
        ["11.0", "18.0"],
        ["12.0", "15.0"],
    ]
    assert [row.rstrip(" |").rpartition(" ")[2] for row in rows] == ["8.0", "1.6", "1.2"]
