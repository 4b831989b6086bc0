"""Splits the graph of a recipe at the searched settings: uses that all trials share, and uses that each trial runs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stillhouse.config import nearest
from stillhouse.errors import InputError
from stillhouse.experiments.comparison.graph import below
from stillhouse.experiments.comparison.plan import merged
from stillhouse.setting_kinds import plain
from stillhouse.steps.execute import execute, open_inputs
from stillhouse.steps.places import location_fields
from stillhouse.tuning.space import Settings, Space
from stillhouse.workflow.graph import CORPUS, Use, graph_of, needed
from stillhouse.workflow.recipes import Recipe, configs
from stillhouse.workflow.run_progress import made_of


@dataclass(frozen=True)
class TrialGraph:
    """`shared` uses do not depend on searched settings, `own` uses do; both are in running order.

    `retriever` is the `use/output` to measure, with the index from the use `index`.
    """

    recipe: Recipe
    where: str
    space: Space
    shared: tuple[Use, ...]
    own: tuple[Use, ...]
    retriever: str
    index: str

    def configs(self, settings: Settings) -> dict[str, Any]:
        """The settings of every use in a trial. Raises `InputError` for incompatible values."""
        return configs(merged(self.recipe, settings), self.where)

    def base_configs(self) -> list[tuple[str, Any]]:
        """The recipe's own settings for every use that a trial needs, in running order."""
        found = self.configs({})
        return [(use.name, found[use.name]) for use in (*self.shared, *self.own)]

    @property
    def trainings(self) -> list[str]:
        """The trainings of a trial, in running order."""
        return [use.name for use in self.own if any(port.name == "curves" for port in use.step.outputs)]

    def default(self) -> Settings:
        """The recipe's own values of the searched settings."""
        found = self.configs({})
        uses = {use.section: use.name for use in self.own}
        return {one.key: plain(getattr(found[uses[one.section]], one.field)) for one in self.space.parameters}


def trial_graph(recipe: Recipe, where: str, space: Space, retriever: str = "") -> TrialGraph:
    """The graph of the trials over a recipe, measured at `retriever` or at the space's retriever.

    Parameters that the retriever does not depend on are left out. Raises `InputError` if it depends on none, or if the
    recipe has no such retriever or no index of it.
    """
    graph = graph_of(recipe, where)
    name = retriever or space.retriever
    indexes = {
        use.inputs["retriever"].partition("/")[0]: use
        for use in graph
        if use.step_name == "index" and use.inputs.get("retriever")
    }
    if name not in indexes:
        raise InputError(f"{where} has no retriever {name!r} with an index to measure it; {nearest(name, indexes)}")
    index = indexes[name]
    uses = needed(graph, [index.name])
    sections = {use.section for use in uses}
    kept = space.within(sections, name)
    if not kept.parameters:
        raise InputError(
            f"{name} depends on none of the searched settings ({', '.join(sorted(space.sections))}); "
            f"search settings of {', '.join(sorted(sections))}, or choose another --retriever"
        )
    varying = below({use.name for use in uses if use.section in kept.sections}, uses)
    outside = [use.name for use in uses if use.name in varying and location_fields(use.step)]
    if outside:
        raise InputError(f"{', '.join(outside)} reads a source, so its settings cannot be searched; leave them out")
    return TrialGraph(
        recipe,
        where,
        kept,
        tuple(use for use in uses if use.name not in varying),
        tuple(use for use in uses if use.name in varying),
        index.inputs["retriever"],
        index.name,
    )


def make_shared(graph: TrialGraph, workspace: Path, root: Path, log: Callable[[str], None]) -> dict[str, str]:
    """Run the shared uses once below `root`; outputs that `workspace` already has are linked.

    Returns the digests of the shared outputs that trials read, by `use/output`.
    """
    from stillhouse.artifacts import read_manifest

    settings = graph.configs({})
    for use in graph.shared:
        if link_made(use, settings[use.name], workspace, root):
            continue
        if is_made(use, settings[use.name], root, root):
            continue
        log(f"{use.name}: runs once for all trials")
        execute(use.step, settings[use.name], use.input_paths(root), use.output_paths(root))
    shared = {use.name for use in graph.shared}
    read = {source for use in graph.own for source in use.inputs.values() if source.partition("/")[0] in shared}
    return {source: read_manifest(root / source, verify=False).digest for source in sorted({*read, CORPUS["corpus"]})}


def link_made(use: Use, config: Any, workspace: Path, root: Path) -> bool:
    """Link the outputs of a use from `workspace` if they match the inputs below `root`; return whether they do.

    A link to other outputs is removed.
    """
    link = root / use.name
    if link.is_symlink():
        link.unlink()
    if link.exists() or not is_made(use, config, workspace, root):
        return False
    root.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(workspace / use.name, root), target_is_directory=True)
    return True


def is_made(use: Use, config: Any, outputs: Path, inputs: Path) -> bool:
    """Whether `outputs` has all outputs of a use, made with these settings from the inputs below `inputs`.

    For a source outside the graph, the version that `dvc repro` read counts as current.
    """
    try:
        return made_of(use, config, outputs, open_inputs(use.step, use.input_paths(inputs)))
    except InputError:
        return False


def link_shared(graph: TrialGraph, shared: Path, root: Path) -> None:
    """Link the shared outputs into the folder of a trial."""
    root.mkdir(parents=True, exist_ok=True)
    for use in graph.shared:
        link = root / use.name
        if not link.is_symlink():
            link.symlink_to(os.path.relpath(shared / use.name, root), target_is_directory=True)


def remove_trial(folder: Path) -> None:
    """Remove a trial's outputs and checkpoints. Links are removed, but not their targets."""
    shutil.rmtree(folder, ignore_errors=True)


def differing(settings: Mapping[str, object], default: Mapping[str, object]) -> Settings:
    """The settings that differ from the recipe's own."""
    return {key: value for key, value in settings.items() if key not in default or value != default[key]}  # type: ignore[misc]
