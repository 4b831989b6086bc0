"""What the small tasks of a Kubeflow run do: the gate, the gathering of shards, the report at its end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stillhouse.artifacts import MANIFEST, read_manifest, whole_folder, write_manifest, write_whole
from stillhouse.context import say
from stillhouse.errors import InputError, ValidationFailed
from stillhouse.markdown import as_text
from stillhouse.monitoring.run_end import tell_run
from stillhouse.steps.execute import write_metrics
from stillhouse.surfaces.component import watched_task
from stillhouse.surfaces.held_folders import hold_folders, link_or_copy
from stillhouse.surfaces.run_state import RunEnd, run_end
from stillhouse.terminal import show
from stillhouse.versions.address import redact

FIRST_FAILED = "The first failed task in the graph says why, in the last lines of its log."
LEFT_OPEN = (
    "Kubeflow left the state of the run's tasks at {state}, which says neither that all succeeded nor that one failed. "
    "That is how it leaves a run in which a condition skipped tasks, and one whose pod was killed. The graph shows "
    "which: a failed task is marked there."
)
RESUMED = "Trainings go on from their last checkpoint when the run is started again with the same parameters."


def stop_unless_passed(validation: str) -> None:
    """Ends the process with the exit code of a failed validation, unless the verdict in this folder is good."""
    with watched_task("gate"):
        facts = read_manifest(Path(validation)).facts
        if facts.get("passed") is not True:
            failed = ", ".join(facts.get("failed", [])) or "no verdict"
            raise ValidationFailed(
                f"the corpus did not pass validation ({failed}); open the page of the task `validate`, mend the corpus "
                "or raise the threshold in the recipe, and start the run again. Nothing was trained"
            )


def put_together(parts: Sequence[str], folder: str) -> None:
    """Copies what `encode` wrote of every shard to a folder of its own inside `folder`."""
    with watched_task("gather-vectors"):
        if not parts:
            raise InputError("there are no vectors to put together: no shard was encoded")
        with whole_folder(Path(folder)) as staging:
            for part in map(Path, parts):
                number = read_manifest(part, verify=False).facts["shard"]
                target = staging / f"shard-{number:04}"
                if target.exists():
                    raise InputError(f"shard {number} is there twice; start the run again")
                target.mkdir()
                for file in part.iterdir():
                    link_or_copy(str(file), str(target / file.name))
                assert (target / MANIFEST).is_file()


def add_up_counts(parts: Sequence[str], folder: str) -> None:
    """Writes the sum of what `count` wrote of every shard as one count folder: the counts of the whole corpus."""
    from stillhouse.pretraining.ngram_files import merge_counts

    with watched_task("gather-counts"):
        manifests = [read_manifest(Path(part)) for part in parts]
        numbers = sorted(manifest.facts["shard"] for manifest in manifests)
        if not numbers or numbers != list(range(1, manifests[0].facts["shards"] + 1)):
            raise InputError(f"the counts are of the shards {numbers}, and not of each once; start the run again")
        if any(manifest.inputs != manifests[0].inputs for manifest in manifests):
            raise InputError("the counts are of several corpora; start the run again")
        with whole_folder(Path(folder)) as staging, TemporaryDirectory() as work:
            saved = merge_counts([Path(part) for part in parts], staging, Path(work))
            facts = {f"distinct_{n}_grams": count for n, count in enumerate(saved.distinct, start=1)}
            config = {name: manifests[0].config[name] for name in ("window", "unit")}
            write_manifest(staging, "count", config, manifests[0].inputs, facts)


def gather_inputs(values: Mapping[str, Any]) -> None:
    """Puts artifacts of several tasks into one folder for each port that takes many, as a component takes them.

    `given` among the arguments says, as JSON, which: {output: {name of a folder: the argument that holds it}}.
    """
    with watched_task("gather-inputs"):
        for output, arguments in json.loads(values["given"]).items():
            folders = {name: Path(values[argument].path) for name, argument in arguments.items()}
            hold_folders(folders, Path(values[output].path))


def tell_end(pipeline: str, run: str, state: str | None, error: str | None, summary: str, metrics: str) -> float | None:
    """Writes how a run ended as Markdown, prints it and pushes it to Prometheus.

    Returns 1.0 for a success, 0.0 for a run that failed or was canceled, and None where `state` leaves it open: then
    no figure is written, and the gateway forgets how the run before ended.
    """
    state = state or "UNKNOWN"  # Kubeflow leaves a field out that has its default
    end = run_end(state)
    lines = [f"## {as_text(pipeline)}: {end.value}", "", f"Run {as_text(run)}."]
    if end is RunEnd.UNKNOWN:
        lines += ["", LEFT_OPEN.format(state=as_text(state))]
    if end is RunEnd.FAILED:
        lines += ["", FIRST_FAILED]
        lines += ["", f"> {as_text(redact(error))}"] if error else []
    if end in (RunEnd.FAILED, RunEnd.CANCELED):
        lines += ["", RESUMED]
    write_whole(Path(summary), "\n".join(lines) + "\n")
    succeeded = None if end is RunEnd.UNKNOWN else float(end is RunEnd.SUCCEEDED)
    write_metrics(Path(metrics), {} if succeeded is None else {"succeeded": succeeded})
    show(f"[end] {pipeline}, run {run}: {end.value} ({state})")
    # Somebody's wish to end a run is no failure of it.
    if end is not RunEnd.CANCELED:
        tell_run(None if succeeded is None else bool(succeeded), say)
    return succeeded


def refuse_parameters(pipeline: str, values: Mapping[str, Any]) -> None:
    """Ends the process with the exit code of bad input when a parameter of a run is out of range."""
    from stillhouse.surfaces.run_parameters import TABLES, check_parameters

    with watched_task("check"):
        check_parameters(pipeline, {name: value for name, value in values.items() if name in TABLES[pipeline]})
