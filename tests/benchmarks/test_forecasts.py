"""The benchmark of forecasts: its page from figures made by hand and from the measured ones, and a run's stages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    import forecasts_page

    return forecasts_page


def test_the_page_compares_forecasts_with_processor_time(page: Any) -> None:
    """By hand: 50 + 60 + 10 seconds were forecast, 25 + 0.5 + 5 taken, 80 on the clock."""
    refused = {"flags": [], "new": [2.0, 1.0], "said": ["stillhouse: there is nothing"], "machine": "Machine: one."}
    done = refused | {
        "flags": ["--hours", "0.1"],
        "passages": 1000,
        "questions": {"train": 100},
        "queries": {"train": 50, "dev": 50, "test": 7},
        "recipe": "labelled",
        "passage_length": 96,
        "now": {"retriever_1": 50.0, "distilled": 60.0, "best": 10.0, "evaluate": 99.0},
        "stages": {"retriever_1": [69.0, 25.0], "distilled": [1.0, 0.5], "best": [10.0, 5.0]},
        "until": "best",
        "run_code": 0,
        "said": ["word " * 30],
    }
    stopped = done | {"run_code": 2, "until": ""}
    lines = page.page_lines({"empty": refused, "some": done, "one": stopped, "large": done | {"stages": {}}})
    assert "| empty | – | – | 1.0 | refused | – | – | – | – |" in lines
    [row] = [line for line in lines if line.startswith("| some `--hours 0.1 --until best` | 1,000 | 50 / 50 / 7 |")]
    assert row.endswith("| `labelled`, 96 | 120 | 30 | 3.93 | 80 |")
    assert any(line.startswith("| one ") and "the run stops, as `new` says" in line for line in lines)
    assert any(line.startswith("| large ") and line.endswith("| 219 | not run | – | – |") for line in lines)
    stages = [line for line in lines if line.startswith("| some | `")]
    assert stages == ["| some | `retriever_1` | 50 | 25 | 2.00 |", "| some | `distilled` | 60 | 0 | skipped |"]
    assert max(map(len, lines[lines.index("## What `new` says") :])) <= 100


def test_the_page_has_the_measured_figures(page: Any) -> None:
    found = json.loads((FOLDER / "forecasts.measured.json").read_text(encoding="utf-8"))
    text = (FOLDER / "forecasts.md").read_text(encoding="utf-8")
    for line in page.page_lines(found):
        assert not line.startswith("|") or line in text


def test_a_stage_has_the_time_between_what_the_run_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stand-in for `stillhouse run` computes in its first stage and sleeps in the second."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import forecasts_run

    (tmp_path / "stillhouse").mkdir()
    (tmp_path / "stillhouse" / "__init__.py").write_text("")
    (tmp_path / "stillhouse" / "cli.py").write_text(
        "import time\n"
        "print('2 of 2 steps to do: about 1 min', flush=True)\n"
        "print('step 1 of 2: index (index), about 1 min left', flush=True)\n"
        "while time.process_time() < 0.6:\n    pass\n"
        "print('step 2 of 2: best (select-best), about 1 s left', flush=True)\n"
        "time.sleep(0.6)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "workspace").mkdir()
    found = forecasts_run.run(tmp_path / "workspace", "", tmp_path)
    assert found["first_estimate"] == "about 1 min" and found["run_code"] == 0
    assert list(found["stages"]) == ["index", "best"]
    assert found["stages"]["index"][1] == pytest.approx(0.6, abs=0.15)
    assert found["stages"]["best"][0] >= 0.6 and found["stages"]["best"][1] < 0.2
