"""Runs the whole graph in one process, for tests and notebooks: same steps, same folders, no DVC."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from stillhouse.artifacts import read_manifest, refuse_foreign
from stillhouse.config import recorded
from stillhouse.errors import InputError
from stillhouse.graph import ARTIFACTS, USES, Use
from stillhouse.steps.execute import ORDER, execute, open_inputs
from stillhouse.steps.spec import Report
from stillhouse.surfaces.recipes import location_fields


def run_graph(
    configs: Mapping[str, Any], folder: Path, log: Callable[[str], None] = lambda line: None, uses: Iterable[Use] = USES
) -> dict[str, Report | None]:
    """Runs the uses of a graph, by default those of the papers' run, in `folder`/artifacts, as `run_uses` does."""
    return run_uses(uses, configs, folder / ARTIFACTS, log)


def run_uses(
    uses: Iterable[Use], configs: Mapping[str, Any], root: Path, log: Callable[[str], None] = lambda line: None
) -> dict[str, Report | None]:
    """Runs uses in their order below `root` and returns the report of each, None for one that was skipped.

    `configs` maps every use to its settings. A use is skipped when its outputs are whole and record the same settings
    and inputs; they do not record code, so after a change of code the folder is to be removed.
    """
    reports: dict[str, Report | None] = {}
    for use in uses:
        if up_to_date(use, configs[use.name], root):
            log(f"[{use.name}] skipped: its outputs are up to date")
            reports[use.name] = None
        else:
            reports[use.name] = execute(use.step, configs[use.name], use.input_paths(root), use.output_paths(root))
    return reports


def refuse_foreign_outputs(uses: Iterable[Use], root: Path) -> None:
    """Raises `InputError` where uses would write below `root` over what no step wrote: before hours of work."""
    for use in uses:
        for path in use.output_paths(root).values():
            refuse_foreign(path, use.name)


def up_to_date(use: Use, config: Any, root: Path) -> bool:
    """Whether the outputs of a use exist, whole, and were made from the inputs and settings of now.

    Never true of a use that reads something outside the graph, since its settings do not tell what lies there.
    """
    if location_fields(use.step):
        return False
    inputs = {name: manifest.digest for name, manifest in open_inputs(use.step, use.input_paths(root)).items()}
    ports = {port.name: port for port in use.step.outputs}
    for name, path in use.output_paths(root).items():
        try:
            manifest = read_manifest(path)
        except InputError:  # missing or damaged: made anew
            return False
        if manifest.facts.get("passed") is False:  # so that a failed validation says so every time
            return False
        made_from = {key: digest for key, digest in manifest.inputs.items() if key not in ports[name].beside}
        if (manifest.step, manifest.config, made_from) != (use.step_name, recorded(config), inputs):
            return False
        if manifest.facts.get(ORDER, {}) != use.step.order_of(use.inputs):
            return False
    return True
