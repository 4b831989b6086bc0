"""Components as pods run them: in an empty folder each, with a run cache; their artifacts lie in folders."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from stillhouse.config import build, field_types
from stillhouse.graph import ARTIFACTS, find_uses
from stillhouse.surfaces.cached_step import RUN_CACHE, STAGE, stage_text
from stillhouse.surfaces.component import run_component
from stillhouse.surfaces.recipes import load_recipe

USES = find_uses()


@dataclasses.dataclass
class Artifact:
    """What a step sees of a Kubeflow artifact."""

    path: str
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)

    def log_metric(self, name: str, value: float) -> None:
        self.metadata[name] = value


@dataclasses.dataclass
class Pod:
    """Runs the components of uses in an empty folder each, with a run cache; `inputs` are folders of the laptop."""

    laptop: Path
    folder: Path
    cache: Path | str
    monkeypatch: pytest.MonkeyPatch
    count: int = 0

    def run(self, name: str, **changed: Any) -> dict[str, Artifact]:
        """The artifacts of the component of a use; `changed` are settings, or folders instead of the laptop's."""
        use, recipe = USES[name], load_recipe(self.laptop / "params.yaml")
        config = build(use.step.config, recipe.get(name, {}), name)
        values: dict[str, Any] = {port.name: None for port in use.step.inputs}
        values |= {port: Artifact(str(path)) for port, path in use.input_paths(self.laptop / ARTIFACTS).items()}
        self.count += 1
        place = self.folder / f"pod-{self.count}"
        place.mkdir(parents=True)
        outputs = [port.name for port in use.step.outputs]
        values |= {output: Artifact(str(place / output)) for output in (*outputs, "metrics", "html")}
        values |= {field: getattr(config, field) for field in field_types(use.step.config)}
        values |= {key: Artifact(str(value)) if isinstance(value, Path) else value for key, value in changed.items()}
        self.monkeypatch.setenv(RUN_CACHE, str(self.cache))
        self.monkeypatch.setenv(STAGE, stage_text(use, recipe.get(name, {})))
        self.monkeypatch.chdir(place)
        run_component(use.step_name, values)
        return {name: value for name, value in values.items() if isinstance(value, Artifact)}


def content(folder: Path | str) -> dict[str, bytes]:
    """Every file of a folder, the manifest too."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}
