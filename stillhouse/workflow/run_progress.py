"""Which step of how many a run is at, and how long the rest will take: for `stillhouse run` and `dvc repro`.

DVC starts every stage as a separate process. Such a process infers its position from the outputs of the others: those
made from the current settings, inputs and code are done, all others are still to do.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stillhouse.artifacts import Manifest, read_manifest
from stillhouse.config import recorded
from stillhouse.errors import InputError
from stillhouse.steps.execute import ORDER
from stillhouse.workflow.first_run_times import Seen
from stillhouse.workflow.graph import ARTIFACTS, Use, graph_of
from stillhouse.workflow.recipes import configs, load_recipe
from stillhouse.workflow.run_times import estimate
from stillhouse.workflow.seen_source import seen_lately
from stillhouse.yaml_file import read_yaml

STAGE = "DVC_STAGE"
"""Environment variable with the stage that DVC runs, as `retriever_1` or `dvc.yaml:retriever_1`."""
ENVIRONMENT = ARTIFACTS / "environment.json"
FIRST = "environment"
"""The stage that DVC runs before all others; it is not a use."""


def outlook(
    left: Sequence[Use],
    total: int,
    settings: Mapping[str, Any],
    root: Path,
    first_look: Callable[[], Seen | str] = lambda: "",
) -> str:
    """The lines before a run: how many of its uses are `left`, and how long they take, in all and one by one."""
    found = estimate(left, settings, root, first_look)
    said, stages = f"{len(left)} of {total} steps to do: {found.total()}", found.stages()
    return "\n".join([f"{said}:", *stages] if stages else [said])


def position(
    number: int,
    total: int,
    left: Sequence[Use],
    settings: Mapping[str, Any],
    root: Path,
    first_look: Callable[[], Seen | str] = lambda: "",
) -> str:
    """The line about the first of the uses that are `left`: its own time, and that of all of them."""
    found = estimate(left, settings, root, first_look)
    own, time = found.of(left[0].name), found.total()
    if len(left) > 1:
        time = (f"{own}; " if own else "") + found.total(" left in all")
    return f"step {number} of {total}: {left[0].name} ({left[0].step_name}), {time}"


def made_of(use: Use, config: Any, root: Path, inputs: Mapping[str, Manifest], *, verify: bool = True) -> bool:
    """Whether the outputs of a use exist and were made from these settings and inputs.

    With `verify`, their files must be undamaged too.
    """
    digests = {name: manifest.digest for name, manifest in inputs.items()}
    ports = {port.name: port for port in use.step.outputs}
    for name, path in use.output_paths(root).items():
        try:
            manifest = read_manifest(path, verify=verify)
        except InputError:  # missing or damaged: to be made again
            return False
        if manifest.facts.get("passed") is False:  # so that a failed validation is reported every time
            return False
        made_from = {key: digest for key, digest in manifest.inputs.items() if key not in ports[name].beside}
        if (manifest.step, manifest.config, made_from) != (use.step_name, recorded(config), digests):
            return False
        if manifest.facts.get(ORDER, {}) != use.step.order_of(use.inputs):
            return False
    return True


def still_to_do(
    uses: Iterable[Use], settings: Mapping[str, Any], root: Path, of_this_code: Callable[[Use], bool] = lambda use: True
) -> list[Use]:
    """The uses whose outputs are missing or outdated, and those that depend on them.

    Reads only manifests, so it notices neither damaged files nor changes outside the graph, such as in a source.
    """
    left: list[Use] = []
    for use in uses:
        if (
            set(use.read_from) & {other.name for other in left}
            or not of_this_code(use)
            or not _done(use, settings[use.name], root)
        ):
            left.append(use)
    return left


def _done(use: Use, config: Any, root: Path) -> bool:
    try:
        inputs = {name: read_manifest(path, verify=False) for name, path in use.input_paths(root).items()}
    except InputError:
        return False
    return made_of(use, config, root, inputs, verify=False)


def dvc_stage(params: Path) -> Use | None:
    """The use of the recipe `params` whose stage DVC runs in this process; None for any other process or recipe."""
    name = _stage_name()
    if not name:
        return None
    with suppress(InputError):  # the stages that it concerns report it
        return next((use for use in graph_of(load_recipe(params), str(params)) if use.name == name), None)
    return None


def _stage_name() -> str:
    """The stage that DVC runs in this process; empty for any other process."""
    return os.environ.get(STAGE, "").rpartition(":")[2]


def outlook_in_dvc(params: Path) -> str | None:
    """The lines before a `dvc repro`, said by its stage `FIRST` in the workspace's folder.

    None in any other process, if nothing is to do, and if the recipe cannot be read.
    """
    if _stage_name() != FIRST:
        return None
    with suppress(InputError):  # the stages that it concerns report it
        uses, settings, left = _left_in_dvc(params)
        return outlook(left, len(uses), settings, ARTIFACTS, lambda: seen_lately(settings)) if left else None
    return None


def position_in_dvc(use: Use, params: Path) -> str | None:
    """The line about a stage of `dvc repro`, run in the workspace's folder; None if the recipe cannot be read."""
    try:
        uses, settings, todo = _left_in_dvc(params)
    except InputError:
        return None
    left = [use, *(other for other in todo if other != use)]
    return position(len(uses) - len(left) + 1, len(uses), left, settings, ARTIFACTS, lambda: seen_lately(settings))


def _left_in_dvc(params: Path) -> tuple[Sequence[Use], Mapping[str, Any], list[Use]]:
    """The uses of a workspace's run, their settings, and the uses that are still to do."""
    recipe = load_recipe(params)
    settings, uses = configs(recipe, str(params)), graph_of(recipe, str(params))
    return uses, settings, still_to_do(uses, settings, ARTIFACTS, _of_this_code())


def _of_this_code() -> Callable[[Use], bool]:
    """Whether, by dvc.lock, a stage ran with the current code and libraries, which manifests do not record."""
    try:
        now = hashlib.md5(ENVIRONMENT.read_bytes(), usedforsecurity=False).hexdigest()
        stages = read_yaml(Path("dvc.lock"))["stages"]
    except (OSError, InputError, TypeError, KeyError):  # the first stage of the first run
        return lambda use: False

    def of_this_code(use: Use) -> bool:
        with suppress(TypeError, KeyError):
            return any(dep == {**dep, "path": ENVIRONMENT.as_posix(), "md5": now} for dep in stages[use.name]["deps"])
        return False

    return of_this_code
