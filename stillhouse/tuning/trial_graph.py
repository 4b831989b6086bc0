"""What a trial makes anew and what all trials share: the graph of a recipe, cut at the settings that are searched."""

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
from stillhouse.tuning.space import Settings, Space
from stillhouse.workflow.graph import CORPUS, Use, graph_of, needed
from stillhouse.workflow.recipes import Recipe, configs, location_fields
from stillhouse.workflow.run_progress import made_of


@dataclass(frozen=True)
class TrialGraph:
    """`shared` uses no searched setting changes, `own` are each trial's; both inputs first.

    `retriever` is the `use/output` that is measured by its index, the output of the use `index`.
    """

    recipe: Recipe
    where: str
    space: Space
    shared: tuple[Use, ...]
    own: tuple[Use, ...]
    retriever: str
    index: str

    def configs(self, settings: Settings) -> dict[str, Any]:
        """The settings of every use in a trial. Raises `InputError` for values that do not go together."""
        return configs(merged(self.recipe, settings), self.where)

    def base_configs(self) -> list[tuple[str, Any]]:
        """The recipe's own settings of every use that a trial needs, in their order."""
        found = self.configs({})
        return [(use.name, found[use.name]) for use in (*self.shared, *self.own)]

    @property
    def trainings(self) -> list[str]:
        """The trainings of a trial, in their order."""
        return [use.name for use in self.own if any(port.name == "curves" for port in use.step.outputs)]

    def default(self) -> Settings:
        """The searched settings as the recipe has them."""
        found = self.configs({})
        uses = {use.section: use.name for use in self.own}
        return {one.key: plain(getattr(found[uses[one.section]], one.field)) for one in self.space.parameters}


def trial_graph(recipe: Recipe, where: str, space: Space, retriever: str = "") -> TrialGraph:
    """The graph of the trials over a recipe, measured at `retriever`, or at what the space names.

    Parameters that the retriever does not depend on are left out. Raises `InputError` where it depends on none, where
    the recipe has no such retriever or no index of it.
    """
    graph = graph_of(recipe, where)
    name = retriever or space.retriever
    indexes = {
        use.inputs["retriever"].partition("/")[0]: use
        for use in graph
        if use.step_name == "index" and use.inputs.get("retriever")
    }
    if name not in indexes:
        raise InputError(
            f"{where} has no retriever {name!r} with an index, to be measured by; {nearest(name, indexes)}"
        )
    index = indexes[name]
    uses = needed(graph, [index.name])
    sections = {use.section for use in uses}
    kept = space.within(sections, name)
    if not kept.parameters:
        raise InputError(
            f"{name} depends on none of the searched settings, which are of {', '.join(sorted(space.sections))}; "
            f"search settings of {', '.join(sorted(sections))}, or choose another --retriever"
        )
    varying = below({use.name for use in uses if use.section in kept.sections}, uses)
    outside = [use.name for use in uses if use.name in varying and location_fields(use.step)]
    if outside:
        raise InputError(f"settings of {', '.join(outside)} cannot be searched, as it reads a source; leave them out")
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
    """Makes below `root` what all trials share, once; what `workspace` has of it already is linked, not made.

    Returns the digests of what trials read of it, by `use/output`.
    """
    from stillhouse.artifacts import read_manifest

    settings = graph.configs({})
    for use in graph.shared:
        if link_made(use, settings[use.name], workspace, root):
            continue
        if is_made(use, settings[use.name], root, root):
            continue
        log(f"{use.name}: made once for all trials")
        execute(use.step, settings[use.name], use.input_paths(root), use.output_paths(root))
    shared = {use.name for use in graph.shared}
    read = {source for use in graph.own for source in use.inputs.values() if source.partition("/")[0] in shared}
    return {source: read_manifest(root / source, verify=False).digest for source in sorted({*read, CORPUS["corpus"]})}


def link_made(use: Use, config: Any, workspace: Path, root: Path) -> bool:
    """Whether `workspace` has the outputs of a use as they would be made from the inputs below `root`.

    They are then linked from there; a link that leads to other outputs goes.
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
    """Whether the outputs of a use lie whole below one folder, made with these settings from what lies below another.

    Of what a step reads outside the graph, the source that `dvc repro` read counts as the one of now.
    """
    try:
        return made_of(use, config, outputs, open_inputs(use.step, use.input_paths(inputs)))
    except InputError:
        return False


def link_shared(graph: TrialGraph, shared: Path, root: Path) -> None:
    """Links what all trials share into the folder of one."""
    root.mkdir(parents=True, exist_ok=True)
    for use in graph.shared:
        link = root / use.name
        if not link.is_symlink():
            link.symlink_to(os.path.relpath(shared / use.name, root), target_is_directory=True)


def remove_trial(folder: Path) -> None:
    """Removes what a trial made, its checkpoints too. Links go, and what they lead to stays."""
    shutil.rmtree(folder, ignore_errors=True)


def differing(settings: Mapping[str, object], default: Mapping[str, object]) -> Settings:
    """The settings that are not the recipe's own."""
    return {key: value for key, value in settings.items() if key not in default or value != default[key]}  # type: ignore[misc]
