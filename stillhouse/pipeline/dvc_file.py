"""Renders dvc.yaml from the graph: its stages are the graph's.

    python -m stillhouse.pipeline.dvc_file params.yaml > dvc.yaml

The stages come from the recipe's graph. Its settings only decide which locations are paths on this machine, because DVC
can watch no others. Such a path is written as `${step.field}`, so that DVC follows a change in params.yaml. The first
stage writes what the others compute and read (`plan_files`). It always runs, and DVC runs another stage only if its own
file or something that it reads has changed. Outputs persist, so that a stage keeps what is up to date.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from stillhouse.corpus.sources.options import SAMPLE
from stillhouse.evaluation.systems import about_training
from stillhouse.pipeline.graph import ARTIFACTS, graph_of
from stillhouse.pipeline.graph_steps import GraphStep, Stage, stages_of
from stillhouse.pipeline.plan_files import PLAN, plan_file
from stillhouse.pipeline.recipes import Recipe, load_recipe
from stillhouse.pipeline.steps.places import IN_REPOSITORY, location_fields

HEADER = """\
# Rendered from stillhouse/pipeline/graph.py; a test holds it to that. To render it again:
#     python -m stillhouse.pipeline.dvc_file params.yaml > dvc.yaml
"""
PLAN_STAGE = {"plan": {"cmd": "stillhouse plan", "always_changed": True, "outs": [PLAN.as_posix()]}}


def render(recipe: Recipe, folder: Path) -> str:
    """The text of dvc.yaml for a recipe in `folder`."""
    steps = graph_of(recipe)
    evaluations = [path for step in steps for name, path in step.output_paths().items() if name == "evaluation"]
    figures = ["metrics", "dev_metrics"] + ["teachers"] * any("teacher" in step.inputs for step in steps)
    content = {
        "stages": PLAN_STAGE | {one.name: stage(one, recipe, folder) for one in stages_of(steps)},
        "params": ["params.yaml"],
        "metrics": [f"{path}/{name}.json" for path in evaluations for name in figures],
        "plots": [_plot(step.name) for step in steps if "curves" in step.output_paths()],
    }
    return HEADER + yaml.dump(content, sort_keys=False, width=1000, Dumper=Indented)


def stage(of: Stage, recipe: Recipe, folder: Path) -> dict[str, Any]:
    """One stage of dvc.yaml, whose output is a folder for each of its steps."""
    sources = [source for step in of.steps for source in _sources(step, recipe, folder)]
    read = [(ARTIFACTS / source).as_posix() for source in of.sources]
    outs: list[Any] = [{(ARTIFACTS / step.name).as_posix(): {"persist": True}} for step in of.steps]
    deps = [plan_file(of.name).as_posix(), *dict.fromkeys(sources), *read]
    return {"cmd": f"stillhouse run {of.name}", "deps": deps, "outs": outs}


def _sources(step: GraphStep, recipe: Recipe, folder: Path) -> list[str]:
    """The paths on this machine that a step reads outside the run."""
    settings = recipe.get(step.section, {})
    elsewhere = IN_REPOSITORY if settings.get("repo") else ()  # `source` is then a path in it
    return [
        f"${{{step.section}.{field}}}"
        for field in location_fields(step.spec)
        if field not in elsewhere
        if (value := settings.get(field)) and value != SAMPLE and (folder / value).exists()
    ]


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
