"""The micro recipe end to end with DVC: the same figures as a run in one process, and a second run does nothing.

`test_stages_everywhere.py` shows on a shorter graph that only what changed runs again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dvc_workspace import repro
from programs import EVALUATION, ROOT, call

from stillhouse.pipeline.graph import USES, known_uses


@pytest.mark.slow
@pytest.mark.long
def test_dvc_gives_the_same_figures(expected: dict[str, Any], tmp_path: Path) -> None:
    call(ROOT, "stillhouse", "new", str(tmp_path / "work"), "--recipe", "micro")
    folder = tmp_path / "work"
    assert set(repro(folder, USES)) == set(known_uses({}))
    assert json.loads((folder / EVALUATION / "metrics.json").read_text()) == expected
    assert repro(folder, USES) == []
    shown = json.loads(call(folder, "dvc", "metrics", "show", "--json"))[""]["data"]
    assert shown[f"{EVALUATION}/metrics.json"]["data"] == expected
