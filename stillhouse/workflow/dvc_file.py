"""Renders dvc.yaml from the graph, with one stage per use of a step.

    python -m stillhouse.workflow.dvc_file params.yaml > dvc.yaml

The stages come from the recipe's graph. Its settings only decide which locations are paths on this machine, because DVC
can watch no others. Such a path is written as `${use.field}`, so that DVC follows a change in params.yaml.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from stillhouse.corpus.sources.built_in import SAMPLE
from stillhouse.evaluation.systems import about_training
from stillhouse.workflow.graph import ARTIFACTS, Use, graph_of
from stillhouse.workflow.recipes import Recipe, load_recipe, location_fields
from stillhouse.workflow.step_command import command_of

HEADER = """\
# Rendered from stillhouse/workflow/graph.py; a test holds it to that. To render it again:
#     python -m stillhouse.workflow.dvc_file params.yaml > dvc.yaml
"""


ENVIRONMENT = f"{ARTIFACTS}/environment.json"
"""What every stage depends on besides its folders: the code and the libraries."""
ENVIRONMENT_STAGE = {
    # It is quick, and DVC reruns other stages only if this file's content changed.
    "environment": {"cmd": f"stillhouse environment {ENVIRONMENT}", "always_changed": True, "outs": [ENVIRONMENT]}
}


def render(recipe: Recipe, folder: Path) -> str:
    """The text of dvc.yaml for a recipe in `folder`."""
    uses = graph_of(recipe)
    evaluations = [path for use in uses for name, path in use.output_paths().items() if name == "evaluation"]
    figures = ["metrics", "dev_metrics"] + ["teachers"] * any("teacher" in use.inputs for use in uses)
    content = {
        "stages": ENVIRONMENT_STAGE | {use.name: stage(use, recipe, folder, reported=True) for use in uses},
        "metrics": [f"{path}/{name}.json" for path in evaluations for name in figures],
        "plots": [_plot(use.name) for use in uses if "curves" in use.output_paths()],
    }
    return HEADER + yaml.dump(content, sort_keys=False, width=1000, Dumper=Indented)


def report_path(use: Use) -> Path:
    """Where a stage writes the step's report, which a Kubeflow component shows when it restores the stage."""
    return ARTIFACTS / use.name / "report.json"


def stage(use: Use, recipe: Recipe, folder: Path, *, reported: bool = False) -> dict[str, Any]:
    """One stage; if `reported`, the step's report is an additional output.

    All outputs are cached, since DVC restores a stage elsewhere only if every output is in the cache. DVC never
    restores a stage without dependencies, so all depend on `ENVIRONMENT`.
    """
    settings = recipe.get(use.section, {})
    elsewhere = {"repo", "revision", "source"} if settings.get("repo") else set()  # `source` is then a path in it
    sources = [
        f"${{{use.section}.{field}}}"
        for field in location_fields(use.step)
        if field not in elsewhere
        if (value := settings.get(field)) and value != SAMPLE and (folder / value).exists()
    ]
    folders = [path.as_posix() for path in use.input_paths().values()]
    words, outs = command_of(use), [path.as_posix() for path in use.output_paths().values()]
    if reported:
        words.append(f"--report {report_path(use).as_posix()}")
        outs.append(report_path(use).as_posix())
    deps = [ENVIRONMENT, *sources, *dict.fromkeys(folders)]
    return {"cmd": " ".join(words), "deps": deps, "params": [use.section], "outs": outs}


def _plot(training: str) -> dict[str, Any]:
    curve = f"{ARTIFACTS}/{training}/curves/curves.csv"
    losses = ["train_loss", "heldout_loss"]
    return {
        training: {"x": "step", "y": {curve: losses}, "title": f"Loss: {about_training(training)}", "y_label": "loss"}
    }


class Indented(yaml.SafeDumper):
    """Indents lists below their key, as DVC itself writes them."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def main(argv: list[str]) -> int:
    path = Path(argv[0] if argv else "params.yaml")
    print(render(load_recipe(path), path.parent), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
