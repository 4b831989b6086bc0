"""Runs a task's step through DVC's run cache: restores work that was done anywhere, and saves work that is done here.

A pod knows its settings and inputs. The key of the run cache comes from a stage of dvc.yaml, which also has the name
of the use, the paths of the graph, and the settings as the recipe words them. The pipeline passes these to the task. A
single component belongs to no stage, so it computes.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from stillhouse.artifacts import read_manifest, whole_folders, write_json
from stillhouse.config import build, field_types, recorded
from stillhouse.context import say
from stillhouse.errors import InputError
from stillhouse.kubernetes.pods.pipeline_parameters import RUN_CACHE_PARAMETER, pipeline_parameters
from stillhouse.monitoring.activity import doing
from stillhouse.monitoring.watch import watch_step
from stillhouse.releases.cache_folder import bytes_of, own_cache
from stillhouse.remote.address import refuse_secret
from stillhouse.remote.dvc_source import reason
from stillhouse.retrieval.settings import NO_MODEL
from stillhouse.setting_kinds import plain
from stillhouse.steps.execute import open_inputs, read_report, refuse_outputs, write_report
from stillhouse.steps.spec import Report, Step
from stillhouse.workflow.dvc_file import ENVIRONMENT, report_path, stage
from stillhouse.workflow.graph import Use
from stillhouse.workflow.recipes import location_fields

if TYPE_CHECKING:
    from stillhouse.releases.run_cache import RunCache

RUN_CACHE = "STILLHOUSE_RUN_CACHE"
"""Environment variable with a folder or the URL of a DVC remote; the run's parameter `run_cache` overrides it."""
PLACES = "places.json"
"""The file that lists what a step reads outside the run; a dependency of its stage here."""
COMMIT = re.compile("[0-9a-f]{40}")

Folders = Mapping[str, Path]
CachedUse = tuple[Use, Mapping[str, Any]]
"""A use, and the recipe's section for it, verbatim."""


def through_run_cache(
    step: Step, config: Any, inputs: Folders, outputs: Folders, compute: Callable[[], Report], cached: CachedUse | None
) -> Report:
    """The report of a step whose outputs are restored, or computed by `compute` and saved for others.

    It is always computed without a run cache, without `cached`, and for a step that reads something that neither its
    settings pin down nor `read_now` knows. Problems with the run cache only cost a line in the log.
    """
    url = run_cache_asked()
    with doing("looking at what it reads outside the run"):
        places = read_now(step, config) if url and cached else None
    if places is None or not cached:
        return compute()
    # A remote that does not answer may still be at work there, in an abandoned thread.
    with TemporaryDirectory(ignore_cleanup_errors=True) as place:
        try:
            use, section = cached
            with doing("opening the run cache"):
                cache = open_run_cache(Path(place), url, use, settings_of(config, section), inputs, places)
        except Exception as error:  # for instance an image without DVC
            say(f"[{step.name}] the run cache {url} cannot be used ({reason(error)}); computing it here")
            return compute()
        with doing("fetching it from the run cache"):
            report = _restored(cache, use, config, inputs, outputs)
        if report is None:
            report = compute()
            with doing("saving it to the run cache"):
                _save(cache, use, report, outputs, Path(place) / "report.json")
    return report


def run_cache_asked() -> str:
    """The address of the run cache from the run's parameter or else the environment; empty for none.

    Raises `InputError` for an address with a password or token.
    """
    chosen = pipeline_parameters(sys.argv)
    if RUN_CACHE_PARAMETER in chosen:
        name, address = RUN_CACHE_PARAMETER, str(chosen[RUN_CACHE_PARAMETER])
    else:
        name, address = f"${RUN_CACHE}", os.environ.get(RUN_CACHE, "")
    refuse_secret(address, name)
    return address


def pinned_down(step: Step, config: Any) -> bool:
    """Whether settings and inputs determine all that a step reads: a place outside the run may change tomorrow.

    A path in a DVC repository at a commit is a place that never changes.
    """
    places = {name for name in location_fields(step) if getattr(config, name)}
    if "repo" in places and COMMIT.fullmatch(config.revision or ""):
        places -= {"repo", "source", "revision"}
    return not places


def read_now(step: Step, config: Any) -> Mapping[str, Any] | None:
    """The current content of the places in the settings; empty if the settings say all, None if it is unknown.

    Only the files of a model are known: comparing them costs less than loading it.
    """
    if pinned_down(step, config):
        return {}
    if step.name != "fetch-model" or config.model == NO_MODEL or config.weights == "random":
        return None
    from stillhouse.retrieval.models.model_place import content_of

    try:
        return {"model": content_of(config.model)}
    except InputError:  # the step reports it
        return None


def settings_of(config: Any, section: Mapping[str, Any]) -> dict[str, Any]:
    """A use's section of params.yaml: the recipe's own, with the changes made when the run was started."""
    default, written = type(config)(), build(type(config), section, "recipe")
    found = dict(section)
    for name in field_types(type(config)):
        value = getattr(config, name)
        if value != getattr(written if name in section else default, name):
            found[name] = plain(value)
    return found


def open_run_cache(
    place: Path,
    url: str,
    use: Use,
    section: Mapping[str, Any],
    inputs: Folders,
    places: Mapping[str, Any] | None = None,
) -> RunCache:
    """The run cache for the stage of a use, as in a workspace, plus the content of `places`."""
    import dvc  # noqa: F401

    from stillhouse.environment import describe_environment
    from stillhouse.releases.run_cache import RunCache, Stage

    environment = place / "environment.json"
    write_json(environment, describe_environment())
    deps = {ENVIRONMENT: environment} | {path.as_posix(): inputs[port] for port, path in use.input_paths().items()}
    params = {use.section: dict(section)}
    content = stage(use, params, Path(), reported=True)
    if places:
        write_json(place / PLACES, places)
        deps[PLACES] = place / PLACES
        content = {**content, "deps": [*content["deps"], PLACES]}
    url = url if "://" in url else str(Path(url).absolute())
    return RunCache(place / "workspace", url, Stage(use.name, content, params, deps))


def _restored(cache: RunCache, use: Use, config: Any, inputs: Folders, outputs: Folders) -> Report | None:
    """Restores work done elsewhere and returns its report; None if there is none, or it is damaged."""
    try:
        found = cache.restore()
    except Exception as error:  # whatever is wrong with the remote, the step can run here
        say(f"[{use.name}] the run cache {cache.url} cannot be read ({reason(error)}); computing it here")
        return None
    if not found:
        entries = f" ({', '.join(cache.damaged)})" if cache.damaged else ""
        what = f"damaged there{entries}" if cache.broken else "never done before"
        say(f"[{use.name}] not in the run cache {cache.url}: {what}; computing it here")
        return None
    _note_use(cache)
    folders = {port: found[path.as_posix()] for port, path in use.output_paths().items()}
    try:
        facts = _facts(use.step, config, inputs, folders)
        report = read_report(found[report_path(use).as_posix()], facts)
    except InputError as error:
        say(f"[{use.name}] the entry in the run cache {cache.url} is unusable ({error}); computing it here")
        cache.broken = True
        return None
    refuse_outputs(inputs, outputs)
    with watch_step(use.step.name, say) as watched, whole_folders([outputs[port] for port in folders]) as stagings:
        for folder, staging in zip(folders.values(), stagings):
            shutil.copytree(folder, staging, dirs_exist_ok=True, copy_function=shutil.copyfile)
        watched.report = report
    say(f"[{use.name}] taken from the run cache {cache.url}; {report.summary}; wrote {_listed(outputs)}")
    return report


def _note_use(cache: RunCache) -> None:
    """Makes the work area's run cache keep used entries longer; if that cannot be noted, they go sooner."""
    with suppress(OSError, InputError):
        folder = own_cache(cache.url)
        if folder:
            folder.use(cache.taken)


def _facts(step: Step, config: Any, inputs: Folders, folders: Folders) -> dict[str, Any]:
    """The facts of restored folders. Raises `InputError` if they do not fit the step's settings and inputs here."""
    made_of = {name: manifest.digest for name, manifest in open_inputs(step, inputs).items()}
    facts: dict[str, Any] = {}
    made: dict[str, str] = {}
    for port in step.outputs:
        manifest = read_manifest(folders[port.name])
        expected = made_of | {name: made[name] for name in port.beside}
        if (manifest.step, manifest.config, manifest.inputs) != (step.name, recorded(config), expected):
            raise InputError(f"it was made by step '{manifest.step}' from other settings or inputs")
        facts = manifest.facts
        made[port.name] = manifest.digest
    return facts


def _save(cache: RunCache, use: Use, report: Report, outputs: Folders, path: Path) -> None:
    places = {place.as_posix(): outputs[port] for port, place in use.output_paths().items()}
    try:
        write_report(path, report)
        folder = own_cache(cache.url)
        if folder:
            folder.make_room(bytes_of(outputs.values()))
        cache.save(places | {report_path(use).as_posix(): path})
    except Exception as error:  # the step's own work is done
        say(f"[{use.name}] not saved to the run cache {cache.url} ({reason(error)})")
        return
    mended = f"; replaced damaged files there: {', '.join(cache.mended)}" if cache.mended else ""
    say(f"[{use.name}] saved to the run cache {cache.url}{mended}")


def _listed(outputs: Folders) -> str:
    return ", ".join(map(str, outputs.values()))
