"""The memory benchmark with some hundred passages: every step really runs, and growth is compared with its bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The benchmark with its steps in this process, and few queries."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import memory

    def run_alone(_: Path, words: list[str], **environment: str) -> dict[str, Any]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        step, size = words[words.index("--measure") + 1 :]
        return memory.measure_step(step, Path(words[1]), int(size))

    monkeypatch.setattr(memory, "run_alone", run_alone)
    monkeypatch.setattr(memory, "QUERIES", {"train": 8, "dev": 4, "test": 4})
    return memory


def test_every_step_runs_at_every_size_and_is_measured_once(memory: Any, tmp_path: Path) -> None:
    page, folder = tmp_path / "memory.md", tmp_path / "build"
    words = ["--folder", str(folder), "--sizes", "120", "240", "--page", str(page)]
    assert memory.main(words) == 0
    results = memory.read_results(folder)
    assert [(row["step"], row["passages"]) for row in results] == [(s, n) for n in (120, 240) for s in memory.RUNS]
    assert all(0 < row["own"] <= row["peak"] for row in results)
    assert {path.name for path in folder.iterdir()} == {"results.json", "start", "retriever", "reranker"}
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert len(lines) == 3 * len(memory.RUNS)
    assert memory.main(words) == 0 and memory.read_results(folder) == results


@pytest.mark.parametrize(
    ("growth", "verdict"), [(10, "does not depend"), (290, "digests or numbers"), (310, "more than promised")]
)
def test_growth_is_reported_by_the_largest_sizes(memory: Any, growth: int, verdict: str) -> None:
    """Between small sizes, the growth comes mostly from libraries."""
    own = {1000: 10.0, 11_000: 900.0, 111_000: 900 + 100_000 * growth / 2**20}
    by_step = {(name, size): {"own": own[size] if name == "mine" else 5.0} for name in memory.RUNS for size in own}
    [line] = [line for line in memory.grown(by_step, list(own)) if line.startswith("| `mine`")]
    assert verdict in line and f"| {growth} |" in line
