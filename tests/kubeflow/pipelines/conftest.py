"""The reference for whole runs through DVC and Kubeflow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from made_once import made_once
from programs import EVALUATION, ROOT


@pytest.fixture(scope="session")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the content of metrics.json from a run in one process."""
    _, metrics = made_once(tmp_path_factory, "in_process", run_here)
    return metrics


def run_here(folder: Path) -> dict[str, Any]:
    from stillhouse.pipeline.graph import ARTIFACTS, USES
    from stillhouse.pipeline.in_process import run_uses
    from stillhouse.pipeline.recipes import configs, find_recipe, load_recipe

    recipe = find_recipe("micro")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STILLHOUSE_WORK", str(folder / "work"))
        patch.setenv("STILLHOUSE_QUIET", "1")
        patch.chdir(ROOT)
        run_uses(USES, configs(load_recipe(recipe), str(recipe)), folder / ARTIFACTS)
    return json.loads((folder / EVALUATION / "metrics.json").read_text())
