"""Every benchmark that the runner lists parses its flags, what it imports is there, and intervals are right."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
LISTED = ["quality", "no_labels", "languages", "serving", "encoding", "training", "objectives"]
LISTED += ["counting", "mining", "search", "releases", "scale", "gpu"]
PEERS = {"encoding": "sentence_transformers"}
"""What a benchmark compares with, where its module needs that from the start."""


def test_the_runner_lists_its_benchmarks_and_refuses_others(capsys: pytest.CaptureFixture[str]) -> None:
    run = import_module("benchmarks.__main__").main
    assert run(["--help"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")] == LISTED
    assert run(["speed"]) == 2
    assert "no benchmark is called speed" in capsys.readouterr().err


@pytest.mark.parametrize("name", LISTED)
def test_a_benchmark_parses_its_flags(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    if name in PEERS:
        pytest.importorskip(PEERS[name])
    run = import_module("benchmarks.__main__").main
    with pytest.raises(SystemExit) as ended:
        run([name, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: python -m benchmarks {name} ")
    with pytest.raises(SystemExit) as ended:
        run([name, "--no-such-flag"])
    assert ended.value.code == 2


def test_an_interval_over_seeds_and_questions_draws_both_again() -> None:
    """Against draws one after another, each a mean of drawn seeds on drawn questions."""
    interval_over_both = import_module("benchmarks.quality_page").interval_over_both
    rng = np.random.default_rng(1)
    apart_SQ = rng.normal(0.1, 0.5, size=(3, 40)) + np.array([[-0.1], [0.0], [0.2]])
    means = [apart_SQ[rng.integers(0, 3, 3)][:, rng.integers(0, 40, 40)].mean() for _ in range(10_000)]
    assert interval_over_both(apart_SQ) == pytest.approx(np.quantile(means, [0.025, 0.975]), abs=0.01)


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").glob("*.py")), ids=lambda path: str(path.stem))
def test_what_a_benchmark_imports_from_stillhouse_is_there(path: Path) -> None:
    """Also what it imports only while it runs."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("stillhouse"):
            module = import_module(str(node.module))
            for name in node.names:
                assert hasattr(module, name.name) or import_module(f"{node.module}.{name.name}"), name.name
