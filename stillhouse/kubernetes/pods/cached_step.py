"""A task's step through DVC's run cache: what was done anywhere is taken from there, what is done here goes there.

A pod knows its settings and its inputs. Its stage of dvc.yaml, which the key of the run cache is made of, also has the
name of the use and the paths of the graph, and the settings as the recipe words them: the pipeline hands them to the
task. A component by itself is of no stage, and computes.
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
"""Environment variable with a folder or the URL of a DVC remote; the run's parameter `run_cache` goes before it."""
PLACES = "places.json"
"""The file of what a step reads outside the run, a dependency of its stage here."""
COMMIT = re.compile("[0-9a-f]{40}")

Folders = Mapping[str, Path]
CachedUse = tuple[Use, Mapping[str, Any]]
"""A use, and the recipe's section for it, word by word."""


def through_run_cache(
    step: Step, config: Any, inputs: Folders, outputs: Folders, compute: Callable[[], Report], cached: CachedUse | None
) -> Report:
    """The report of a step whose outputs are restored, or computed by `compute` and saved for others.

    Without a run cache, without `cached`, and for a step that reads what neither its settings pin down nor `read_now`
    says, it is computed. Whatever is wrong with the run cache costs a line in the log and nothing more.
    """
    url = run_cache_asked()
    places = read_now(step, config) if url and cached else None
    if places is None or not cached:
        return compute()
    # What does not answer may be at work there still, in a thread that was left to itself.
    with TemporaryDirectory(ignore_cleanup_errors=True) as place:
        try:
            use, section = cached
            cache = open_run_cache(Path(place), url, use, settings_of(config, section), inputs, places)
        except Exception as error:  # as for an image without DVC
            say(f"[{step.name}] the run cache {url} cannot be used ({reason(error)}); it is done here")
            return compute()
        report = _restored(cache, use, config, inputs, outputs)
        if report is None:
            report = compute()
            _save(cache, use, report, outputs, Path(place) / "report.json")
    return report


def run_cache_asked() -> str:
    """Where the run cache is, as the run's parameter says, else the environment; empty for nowhere.

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
    """Whether settings and inputs say all that a step reads: a place outside the run may hold something else tomorrow.

    A path of a DVC repository at a commit is such a place that never changes.
    """
    places = {name for name in location_fields(step) if getattr(config, name)}
    if "repo" in places and COMMIT.fullmatch(config.revision or ""):
        places -= {"repo", "source", "revision"}
    return not places


def read_now(step: Step, config: Any) -> Mapping[str, Any] | None:
    """What the places that settings name hold now, empty where settings say all; None where that is not known.

    Known are the files of a model: comparing them costs less than to load it.
    """
    if pinned_down(step, config):
        return {}
    if step.name != "fetch-model" or config.model == NO_MODEL or config.weights == "random":
        return None
    from stillhouse.retrieval.models.model_place import content_of

    try:
        return {"model": content_of(config.model)}
    except InputError:  # the step says it
        return None


def settings_of(config: Any, section: Mapping[str, Any]) -> dict[str, Any]:
    """A use's section of params.yaml: the recipe's own, with what was chosen otherwise when the run was started."""
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
    """The run cache for the stage of a use, as it stands in a workspace; with what `places` hold beside that."""
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
    """Puts what was done elsewhere in place and returns its report; None where there is nothing, or it is damaged."""
    try:
        found = cache.restore()
    except Exception as error:  # whatever is wrong with the remote, the step can be done here
        say(f"[{use.name}] the run cache {cache.url} cannot be read ({reason(error)}); it is done here")
        return None
    if not found:
        entries = f" ({', '.join(cache.damaged)})" if cache.damaged else ""
        what = f"is damaged there{entries}" if cache.broken else "nobody did it before"
        say(f"[{use.name}] not in the run cache {cache.url}: {what}; it is done here")
        return None
    _note_use(cache)
    folders = {port: found[path.as_posix()] for port, path in use.output_paths().items()}
    try:
        facts = _facts(use.step, config, inputs, folders)
        report = read_report(found[report_path(use).as_posix()], facts)
    except InputError as error:
        say(f"[{use.name}] what the run cache {cache.url} has of it is no use ({error}); it is done here")
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
    """Has the work area's run cache keep what was taken for longer; where that cannot be noted, it goes sooner."""
    with suppress(OSError, InputError):
        folder = own_cache(cache.url)
        if folder:
            folder.use(cache.taken)


def _facts(step: Step, config: Any, inputs: Folders, folders: Folders) -> dict[str, Any]:
    """The facts of restored folders. Raises `InputError` where these are not what the step makes of its inputs here."""
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
        say(f"[{use.name}] was not saved to the run cache {cache.url} ({reason(error)})")
        return
    mended = f"; of it {', '.join(cache.mended)} was damaged there and is replaced" if cache.mended else ""
    say(f"[{use.name}] saved to the run cache {cache.url}{mended}")


def _listed(outputs: Folders) -> str:
    return ", ".join(map(str, outputs.values()))
