"""Runs steps of a graph one after the other in this process, and skips those that are up to date.

`stillhouse run`, `dvc repro`, the Python function `run` and every pod come here: there is one way to resume.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from stillhouse.core.artifacts import Manifest, read_manifest, refuse_foreign
from stillhouse.core.config import recorded
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.pipeline.graph import Use
from stillhouse.pipeline.run_progress import position
from stillhouse.pipeline.steps.execute import ORDER, READ, execute, open_inputs
from stillhouse.pipeline.steps.places import location_fields, read_outside
from stillhouse.pipeline.steps.spec import Report

Run = Callable[[Use, Any, Path], Report]
"""Runs a step with its settings below a root folder."""


def execute_use(use: Use, config: Any, root: Path) -> Report:
    """Runs a step in this process."""
    return execute(use.step, config, use.input_paths(root), use.output_paths(root))


def run_uses(
    uses: Iterable[Use],
    configs: Mapping[str, Any],
    root: Path,
    log: Callable[[str], None] = lambda line: None,
    around: Callable[[Use], AbstractContextManager[None]] = lambda use: nullcontext(),
    whole: Sequence[Use] = (),
    run: Run = execute_use,
    done: Callable[[Use, Any, Report, Path], None] = lambda use, config, report, root: None,
) -> dict[str, Report | None]:
    """Runs uses in order below `root` and returns each one's report, or None if it was skipped.

    `log` gets a line before each use with its position in the run, which has the uses `whole` if given, and the time
    left. Each use is executed within the context that `around` gives, by `run`; `done` gets its report.

    `configs` maps every use to its settings. A use is skipped if its outputs are complete and record the same version
    of the step, the same settings, the same inputs and the same content of what it reads outside the run.
    """
    uses, reports = list(uses), dict[str, Report | None]()
    whole = list(whole) or uses
    for use in uses:
        config = configs[use.name]
        with doing(f"checking whether {use.name} is up to date"):
            skipped = up_to_date(use, config, root)
        if skipped:
            log(f"[{use.name}] skipped: its outputs are up to date")
            reports[use.name] = None
            continue
        if len(whole) > 1:
            number = whole.index(use) + 1
            left = [use, *(other for other in still_to_do(whole, configs, root) if other not in whole[:number])]
            log(position(number, len(whole), left, configs, root))
        with around(use):
            reports[use.name] = report = run(use, config, root)
        done(use, config, report, root)
    return reports


def refuse_foreign_outputs(uses: Iterable[Use], root: Path) -> None:
    """Raises `InputError` if uses would overwrite something below `root` that no step wrote, before hours of work."""
    for use in uses:
        for path in use.output_paths(root).values():
            refuse_foreign(path, use.name)


def up_to_date(use: Use, config: Any, root: Path) -> bool:
    """Whether the outputs of a use are complete, undamaged and were made from the current inputs and settings."""
    return made_of(use, config, root, open_inputs(use.step, use.input_paths(root)))


def made_of(use: Use, config: Any, root: Path, inputs: Mapping[str, Manifest], *, verify: bool = True) -> bool:
    """Whether the outputs of a use exist and were made by this version of the step from these settings and inputs.

    With `verify`, their files must be undamaged too, and what it reads outside the run must be the same: False where
    that cannot be known.
    """
    digests = {name: manifest.digest for name, manifest in inputs.items()}
    ports = {port.name: port for port in use.step.outputs}
    manifests = {}
    for name, path in use.output_paths(root).items():
        try:
            manifests[name] = manifest = read_manifest(path, verify=verify)
        except InputError:  # missing or damaged: to be made again
            return False
        if manifest.facts.get("passed") is False:  # so that a failed validation is reported every time
            return False
        made_from = {key: digest for key, digest in manifest.inputs.items() if key not in ports[name].beside}
        made = manifest.step, manifest.version, manifest.config, made_from
        if made != (use.step_name, use.step.version, recorded(config), digests):
            return False
        if manifest.facts.get(ORDER, {}) != use.step.order_of(use.inputs):
            return False
    if not verify or not location_fields(use.step):
        return True
    now = read_outside(use.step, config)
    return now is not None and all(manifest.facts.get(READ, {}) == now for manifest in manifests.values())


def still_to_do(uses: Iterable[Use], settings: Mapping[str, Any], root: Path) -> list[Use]:
    """The uses whose outputs are missing or outdated, and those that depend on them.

    Reads only manifests, so it notices neither damaged files nor changes outside the graph, such as in a source.
    """
    left: list[Use] = []
    for use in uses:
        if set(use.read_from) & {other.name for other in left} or not _done(use, settings[use.name], root):
            left.append(use)
    return left


def _done(use: Use, config: Any, root: Path) -> bool:
    try:
        inputs = {name: read_manifest(path, verify=False) for name, path in use.input_paths(root).items()}
    except InputError:
        return False
    return made_of(use, config, root, inputs, verify=False)
