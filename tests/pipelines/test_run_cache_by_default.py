"""A step that ran in one run does not run again in the next, with the shipped placements.

Runs use kfp's local runner. Its tasks get the variables of the placement and the parameters of the run as on a cluster;
the volumes are folders.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from kfp.dsl.base_component import BaseComponent

from stillhouse.artifacts import read_manifest
from stillhouse.config import build
from stillhouse.kubernetes.pods.cached_step import RUN_CACHE
from stillhouse.pipelines.interface import make_pipeline
from stillhouse.pipelines.local import run_pipeline
from stillhouse.pipelines.placement_table import PlacementTable, read_table, shipped_tables
from stillhouse.pipelines.tasks import Pods, add_task
from stillhouse.releases.cache_folder import LEFT_ALONE
from stillhouse.workflow.graph import find_uses, needed
from stillhouse.workflow.tasks import tasks_of

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:Task .* have no effect:UserWarning")]
RECIPE = {"ingest": {"max_articles": 5}}


def shipped_table(name: str, volumes: Path) -> PlacementTable:
    """Return a shipped table whose volumes are local folders."""
    text = shipped_tables()[name].read_text()
    for path in ("/volume", "/scratch"):
        (volumes / path.strip("/")).mkdir(parents=True)
        text = re.sub(rf"(?<![\w/]){path}\b", str(volumes) + path, text)
    (volumes / f"{name}.yaml").write_text(text)
    return read_table(volumes / f"{name}.yaml")


def a_part_of_a_run(table: PlacementTable) -> BaseComponent:
    """Return a pipeline with `validate` and everything that it needs."""
    uses = needed(find_uses().values(), ["validate"])

    def body(given: dict[str, Any], pods: Pods) -> None:
        settings: dict[str, Any] = {
            use.name: build(use.step.config, RECIPE.get(use.name, {}), use.name) for use in uses
        }
        for task in tasks_of(uses):
            add_task(task, settings, {}, {}, Pods(pods.table, pods.chosen, recipe=RECIPE))

    return make_pipeline("part", "A part of a run.", [], table, body)


def test_a_second_run_reuses_the_results_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    disk = shutil.disk_usage(tmp_path)
    if disk.free < 1.1 * LEFT_ALONE * disk.total:
        pytest.skip("less than a tenth of this machine's disk is free, which a run cache leaves alone")
    monkeypatch.delenv(RUN_CACHE, raising=False)
    monkeypatch.delenv("STILLHOUSE_QUIET", raising=False)
    part = a_part_of_a_run(shipped_table("cpu", tmp_path / "pod"))
    cache = tmp_path / "pod" / "volume" / "run-cache"
    digests = []
    runs = {
        "first": ({}, f"[validate] saved to the run cache {cache}"),
        "second": ({}, f"[validate] taken from the run cache {cache}"),
        "elsewhere": ({"run_cache": str(tmp_path / "shelf")}, f"[validate] saved to the run cache {tmp_path}/shelf"),
    }
    for name, (parameters, said) in runs.items():
        run_pipeline(part, parameters, tmp_path / name)
        logged = "".join(capfd.readouterr())
        assert said in logged, name
        print(logged)
        [made] = tmp_path.glob(f"{name}/outputs/*/prepare/validate__validation")
        digests.append(read_manifest(made).digest)
    assert len(set(digests)) == 1
