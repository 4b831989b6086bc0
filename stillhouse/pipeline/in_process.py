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
from stillhouse.pipeline.graph import GraphStep
from stillhouse.pipeline.run_progress import position
from stillhouse.pipeline.steps.execute import ORDER, READ, execute, open_inputs
from stillhouse.pipeline.steps.places import location_fields, read_outside
from stillhouse.pipeline.steps.spec import Report

Run = Callable[[GraphStep, Any, Path], Report]
"""Runs a step with its settings below a root folder."""


def execute_step(step: GraphStep, config: Any, root: Path) -> Report:
    """Runs a step in this process."""
    return execute(step.spec, config, step.input_paths(root), step.output_paths(root))


def run_steps(
    steps: Iterable[GraphStep],
    configs: Mapping[str, Any],
    root: Path,
    log: Callable[[str], None] = lambda line: None,
    around: Callable[[GraphStep], AbstractContextManager[None]] = lambda step: nullcontext(),
    whole: Sequence[GraphStep] = (),
    run: Run = execute_step,
    done: Callable[[GraphStep, Any, Report, Path], None] = lambda step, config, report, root: None,
) -> dict[str, Report | None]:
    """Runs steps in order below `root` and returns each one's report, or None if it was skipped.

    `log` gets a line before each step with its position in the run, which has the steps `whole` if given, and the time
    left. Each step is executed within the context that `around` gives, by `run`; `done` gets its report.

    `configs` maps every step to its settings. A step is skipped if its outputs are complete and record the same version
    of the step, the same settings, the same inputs and the same content of what it reads outside the run.
    """
    steps, reports = list(steps), dict[str, Report | None]()
    whole = list(whole) or steps
    for step in steps:
        config = configs[step.name]
        with doing(f"checking whether {step.name} is up to date"):
            skipped = up_to_date(step, config, root)
        if skipped:
            log(f"[{step.name}] skipped: its outputs are up to date")
            reports[step.name] = None
            continue
        if len(whole) > 1:
            number = whole.index(step) + 1
            left = [step, *(other for other in still_to_do(whole, configs, root) if other not in whole[:number])]
            log(position(number, len(whole), left, configs, root))
        with around(step):
            reports[step.name] = report = run(step, config, root)
        done(step, config, report, root)
    return reports


def refuse_foreign_outputs(steps: Iterable[GraphStep], root: Path) -> None:
    """Raises `InputError` if steps would overwrite something below `root` that no step wrote, before hours of work."""
    for step in steps:
        for path in step.output_paths(root).values():
            refuse_foreign(path, step.name)


def up_to_date(step: GraphStep, config: Any, root: Path) -> bool:
    """Whether the outputs of a step are complete, undamaged and were made from the current inputs and settings."""
    return made_of(step, config, root, open_inputs(step.spec, step.input_paths(root)))


def made_of(step: GraphStep, config: Any, root: Path, inputs: Mapping[str, Manifest], *, verify: bool = True) -> bool:
    """Whether the outputs of a step exist and were made by this version of the step from these settings and inputs.

    With `verify`, their files must be undamaged too, and what it reads outside the run must be the same: False where
    that cannot be known.
    """
    digests = {name: manifest.digest for name, manifest in inputs.items()}
    ports = {port.name: port for port in step.spec.outputs}
    manifests = {}
    for name, path in step.output_paths(root).items():
        try:
            manifests[name] = manifest = read_manifest(path, verify=verify)
        except InputError:  # missing or damaged: to be made again
            return False
        if manifest.facts.get("passed") is False:  # so that a failed validation is reported every time
            return False
        made_from = {key: digest for key, digest in manifest.inputs.items() if key not in ports[name].beside}
        made = manifest.step, manifest.version, manifest.config, made_from
        if made != (step.kind, step.spec.version, recorded(config), digests):
            return False
        if manifest.facts.get(ORDER, {}) != step.spec.order_of(step.inputs):
            return False
    if not verify or not location_fields(step.spec):
        return True
    now = read_outside(step.spec, config)
    return now is not None and all(manifest.facts.get(READ, {}) == now for manifest in manifests.values())


def still_to_do(steps: Iterable[GraphStep], settings: Mapping[str, Any], root: Path) -> list[GraphStep]:
    """The steps whose outputs are missing or outdated, and those that depend on them.

    Reads only manifests, so it notices neither damaged files nor changes outside the graph, such as in a source.
    """
    left: list[GraphStep] = []
    for step in steps:
        if set(step.read_from) & {other.name for other in left} or not _done(step, settings[step.name], root):
            left.append(step)
    return left


def _done(step: GraphStep, config: Any, root: Path) -> bool:
    try:
        inputs = {name: read_manifest(path, verify=False) for name, path in step.input_paths(root).items()}
    except InputError:
        return False
    return made_of(step, config, root, inputs, verify=False)
