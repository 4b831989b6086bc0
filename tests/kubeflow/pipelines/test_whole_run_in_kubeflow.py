"""The micro recipe end to end with Kubeflow's local runner: the same figures as a run in one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from programs import ROOT, call

pytestmark = [pytest.mark.slow, pytest.mark.long]


def test_kubeflow_gives_the_same_figures(expected: dict[str, Any], tmp_path: Path) -> None:
    call(ROOT, "stillhouse", "pipeline", "run-local", "--recipe", "micro", "--folder", str(tmp_path))
    assert json.loads((tmp_path / "evaluation" / "metrics.json").read_text()) == expected
    assert (tmp_path / "evaluation" / "report.html").stat().st_size > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["artifacts", "evaluation"], "the workspace is removed"
