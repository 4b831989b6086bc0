"""Renders components/<stage>/component.yaml: the stages as components that other people's pipelines load.

    python -m stillhouse.kubeflow.pipelines.components

A component runs its stage of whatever recipe it is given, so it reads every stage that this stage reads in some graph;
those that a graph does not have are optional.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from kfp import compiler

from stillhouse.kubeflow.pipelines.stage_component import kind_of, stage_component
from stillhouse.kubeflow.pods.stage import FOLDER, METRICS, PAGE, PLAN, RECIPE
from stillhouse.pipeline.graph import GRAPHS, graph_of
from stillhouse.pipeline.graph_steps import Stage, stages_of

FOLDER_OF_ALL = Path(__file__).resolve().parents[3] / "components"
MODULE = "stillhouse.kubeflow.pods.stage"


def stages_of_graphs() -> dict[str, list[tuple[Stage, list[Stage]]]]:
    """Every stage by its name: as each graph has it, with the stages that it reads there."""
    found: dict[str, list[tuple[Stage, list[Stage]]]] = {}
    for name in GRAPHS:
        stages = stages_of(graph_of({"graph": name}))
        for stage in stages:
            found.setdefault(stage.name, []).append((stage, stage.reads(stages)))
    return found


def rendered() -> dict[Path, str]:
    """The text of every file below components/."""
    return {
        FOLDER_OF_ALL / name / file: text
        for name, versions in stages_of_graphs().items()
        for file, text in (("component.yaml", component(versions)), ("README.md", readme(name, versions)))
    }


def component(versions: Sequence[tuple[Stage, list[Stage]]]) -> str:
    """A stage as the YAML that `kfp.components.load_component_from_file` reads."""
    whole = max((stage for stage, _ in versions), key=lambda stage: len(stage.steps))
    reads = {other.name: other for _, of in versions for other in of}
    always = set.intersection(*({other.name for other in of} for _, of in versions))
    first = [other for name, other in reads.items() if name in always]
    optional = [f"{name}: Input[{kind_of(other)}] = None" for name, other in reads.items() if name not in always]
    written = stage_component(whole, first, MODULE, "run_stage", after=optional)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "component.yaml"
        compiler.Compiler().compile(written, str(path))
        return path.read_text(encoding="utf-8")


def readme(name: str, versions: Sequence[tuple[Stage, list[Stage]]]) -> str:
    """What a component does, reads and hands on."""
    steps = dict.fromkeys(f"`{step.name}`" for stage, _ in versions for step in stage.steps)
    read = dict.fromkeys(other.name for _, of in versions for other in of)
    lines = (
        f"# `{name}`",
        "",
        f"Runs the stage `{name}` of a recipe: the same as `stillhouse run {name}` on the command line.",
        "",
        fill(f"Its steps, of which a graph may have some: {', '.join(steps)}.", 100, break_on_hyphens=False),
        "",
        f"- `{RECIPE}`: a folder with the recipe, `params.yaml`.",
        f"- `{PLAN}`, `…_digest`: digests of what it computes and reads, for Kubeflow's cache; may be empty.",
        *(f"- `{other}`: the folder of the stage `{other}`." for other in read),
        f"- `{FOLDER}` (output): a folder for each step, with its outputs.",
        f"- `{METRICS}`, `{PAGE}` (outputs): the figures of its steps, and a page about them.",
        "",
        "```python",
        "from kfp import components",
        "",
        f'stage = components.load_component_from_file("components/{name}/component.yaml")',
        "```",
    )
    return "\n".join(lines) + "\n"


def main() -> None:
    for path, text in rendered().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
