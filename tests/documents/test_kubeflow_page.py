"""The documented commands that start runs, upload pipelines and keep schedules, sent to a server like Kubeflow's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from documented_commands import ROOT, Command, blocks, section
from kubeflow_server import DIGEST, Api
from terminal import Terminal

from stillhouse.core.remote.dvc_source import Found
from stillhouse.kubeflow.pipelines import submit
from stillhouse.kubeflow.pipelines.schedules import watch as watching

REPLACED = {
    "sha256:...": DIGEST,
    "…@sha256:…": f"registry.example/stillhouse@{DIGEST}",
    "--recipe RECIPE": "--recipe micro",
    "--placements FILE": f"--placements {ROOT / 'stillhouse' / 'kubeflow' / 'pipelines' / 'placements' / 'cpu.yaml'}",
}
Type = Callable[[Sequence[Command]], dict[str, str]]


@pytest.fixture
def type_here(kubeflow: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Type:
    """Types commands in a folder with the recipe `mine.yaml`. Waiting for a run polls without a pause."""
    monkeypatch.setattr(submit.time, "sleep", lambda seconds: None)
    terminal = Terminal(tmp_path, monkeypatch, REPLACED | {"http://localhost:8888": kubeflow.host})
    Path("mine.yaml").write_text((ROOT / "stillhouse" / "recipes" / "labelled.yaml").read_text())
    return terminal.type_all


def parameters(run: dict[str, Any]) -> dict[str, str]:
    given: dict[str, str] = run["runtime_config"]["parameters"]
    return given


def test_a_run_is_started_and_followed(type_here: Type, kubeflow: Api) -> None:
    [said] = type_here(section("docs/kubeflow.md", "On a cluster")).values()
    [run] = kubeflow.runs
    assert parameters(run)["source"] == "/volume/corpora/mine" and parameters(run)["image"].endswith(DIGEST)
    assert said.endswith("succeeded\n")


@pytest.mark.long
def test_a_person_with_a_token_starts_and_uploads(type_here: Type, kubeflow: Api, tmp_path: Path) -> None:
    """The test writes ~/token as `kubectl` would, and types the commands that follow."""
    kubeflow.multi_user = True
    (tmp_path / "home" / "token").write_text("secret\n")
    type_here(section("docs/kubeflow.md", "A token for a person"))
    assert kubeflow.tokens == {"Bearer secret"} and len(kubeflow.runs) == 1 and kubeflow.pipelines
    assert yaml.safe_load(Path("train.yaml").read_text().split("---")[0])["pipelineInfo"]["name"] == "train"
    assert sorted(path.name for path in Path("manifests/pipelines").iterdir()) == ["cpu", "gpu"]


def test_settings_are_fixed_at_the_start_and_in_a_version(type_here: Type, kubeflow: Api) -> None:
    type_here(section("docs/kubeflow.md", "Parameters"))
    assert len(kubeflow.runs) == 1 and kubeflow.pipelines
    spec = str(kubeflow.runs[0]["pipeline_spec"])
    assert "20000" in spec and "R@100" in spec


def test_runs_on_several_nodes_and_versions_of_one_s_own(type_here: Type, kubeflow: Api) -> None:
    for heading in ("4. The first scheduled retraining", "Training on several nodes", "The queue"):
        type_here(section("docs/deploy.md", heading))
    assert len(kubeflow.runs) == 1 and kubeflow.uploaded


def test_a_refresh_is_started_and_followed(type_here: Type, kubeflow: Api) -> None:
    type_here(section("docs/releases.md", "The same on a cluster"))
    [run] = kubeflow.runs
    assert (parameters(run)["source"], parameters(run)["revision"]) == ("corpus", "v8")


def test_the_schedules_of_the_page_are_applied_listed_and_watched(
    type_here: Type, kubeflow: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schedules are those of the page. The watched corpus has no release yet."""
    [content] = blocks("docs/releases.md", "yaml")
    Path("schedules.yaml").write_text(content.replace("sha256:…", DIGEST))
    kubeflow.keep("shared")
    monkeypatch.setattr(watching, "look_up", lambda repo, revision, path: Found(repo, path, "c1", "one.dir"))
    monkeypatch.setattr(watching, "in_use", lambda watch: (None, frozenset(), False))
    said = type_here(section("docs/releases.md", "Schedules"))
    [nightly] = kubeflow.recurring
    assert nightly["trigger"]["cron_schedule"]["cron"] == "0 0 3 * * *"
    assert len(kubeflow.runs) == 1 and kubeflow.uploaded
    assert "nightly" in said["stillhouse schedule apply schedules.yaml --dry-run"]
