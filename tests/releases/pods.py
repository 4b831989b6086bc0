"""Run steps as pods do: each as its own task in an empty folder, with a run cache and artifacts in folders."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from stillhouse.config import build
from stillhouse.kubernetes.pods.cached_step import RUN_CACHE
from stillhouse.kubernetes.pods.component_views import views_of
from stillhouse.kubernetes.pods.task import METRICS, PAGE, RUN, STEPS, as_json, describe_use, port_name, run_task
from stillhouse.workflow.graph import ARTIFACTS, find_uses
from stillhouse.workflow.recipes import load_recipe

USES = find_uses()


@dataclasses.dataclass
class Artifact:
    """The parts of a Kubeflow artifact that a step uses."""

    path: str
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)

    def log_metric(self, name: str, value: float) -> None:
        self.metadata[name] = value


@dataclasses.dataclass
class Pod:
    """Runs each use in an empty folder, with a run cache. The inputs are folders of the laptop."""

    laptop: Path
    folder: Path
    cache: Path | str
    monkeypatch: pytest.MonkeyPatch
    count: int = 0

    def run(self, name: str, **changed: Any) -> dict[str, Artifact]:
        """Run the task of a use and return its artifacts. `changed` has settings, or folders for the laptop's."""
        use, section = USES[name], load_recipe(self.laptop / "params.yaml").get(name, {})
        folders = {key: value for key, value in changed.items() if isinstance(value, Path)}
        settings = {key: value for key, value in changed.items() if key not in folders}
        config = dataclasses.replace(build(use.step.config, section, name), **settings)
        inputs = use.input_paths(self.laptop / ARTIFACTS) | folders
        self.count += 1
        values: dict[str, Any] = {RUN: f"run-{self.count}", STEPS: as_json({name: describe_use(use, section, config)})}
        values |= {port_name(source): Artifact(str(inputs[key])) for key, source in use.inputs.items()}
        place = self.folder / f"pod-{self.count}"
        place.mkdir(parents=True)
        outputs = [*(port.name for port in use.step.outputs), *(view.name for view in views_of(use.step_name))]
        made = {output: Artifact(str(place / output)) for output in outputs}
        values |= {port_name(f"{name}/{output}"): artifact for output, artifact in made.items()}
        of_task = {output: Artifact(str(place / output)) for output in (METRICS, PAGE)}
        self.monkeypatch.setenv(RUN_CACHE, str(self.cache))
        self.monkeypatch.chdir(place)
        run_task(name, values | of_task)
        return made | of_task


def content(folder: Path | str) -> dict[str, bytes]:
    """Return every file of a folder, including the manifest."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}
