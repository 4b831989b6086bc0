"""One recipe run by `stillhouse run`, `dvc repro` and Kubeflow's local runner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from dvc_workspace import repro

from stillhouse import cli
from stillhouse.core.artifacts import digest_files, read_manifest
from stillhouse.kubeflow.pipelines.catalog import Request
from stillhouse.kubeflow.pipelines.local import run_pipeline
from stillhouse.pipeline.graph import graph_of


def the_same_everywhere(recipe: dict[str, Any], folder: Path) -> list[str]:
    """Run a recipe by `stillhouse run`, `dvc repro` and Kubeflow's local runner; return the systems of its evaluation.

    Every output must be the same by `dvc repro` as by `stillhouse run`. Kubeflow's runner hands on only what other
    tasks read, so there it is the evaluation, which depends on all that is before it.
    """
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe, sort_keys=False))
    steps = graph_of(recipe)

    assert cli.main(["run", "--params", str(path), "--folder", str(folder / "run"), "--quiet"]) == 0
    of_run = folder / "run" / "artifacts"
    assert {made.name for made in of_run.iterdir()} == {step.name for step in steps}
    evaluation = read_manifest(of_run / "evaluate" / "evaluation")

    workspace = folder / "workspace"
    assert cli.main(["new", str(workspace), "--recipe", str(path)]) == 0
    # DVC chooses the order of stages that do not read each other.
    assert sorted(repro(workspace, steps)) == sorted(step.name for step in steps)
    for made in sorted(path.parent for path in of_run.rglob("manifest.json")):
        there = workspace / "artifacts" / made.relative_to(of_run)
        assert digest_files(there) == digest_files(made), made
        assert read_manifest(there).digest == read_manifest(made).digest, made

    run_pipeline(Request("train", str(path)).build(None), {}, folder / "local")
    [found] = (folder / "local").glob("outputs/*/evaluation/folder/evaluate/evaluation")
    assert read_manifest(found).digest == evaluation.digest
    systems: list[str] = evaluation.facts["systems"]
    return systems
