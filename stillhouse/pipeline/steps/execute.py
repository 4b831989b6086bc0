"""Runs one step: checks its inputs and their lineage, and writes its outputs completely, with manifests."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stillhouse.core import context as run_context
from stillhouse.core.artifacts import (
    Manifest,
    digest_json,
    foreign_manifest,
    model_manifest,
    read_manifest,
    refuse_foreign,
    whole_folders,
    write_manifest,
    write_whole_json,
)
from stillhouse.core.config import recorded
from stillhouse.core.context import Context
from stillhouse.core.environment import software
from stillhouse.core.errors import InputError, ValidationFailed, access_errors
from stillhouse.core.lock import only_process
from stillhouse.core.monitoring.activity import doing, watched
from stillhouse.core.monitoring.monitor import Monitor
from stillhouse.core.monitoring.watch import watch
from stillhouse.models.settings import MODULES
from stillhouse.pipeline.steps.old_work import DAYS, remove_old_work
from stillhouse.pipeline.steps.places import read_outside
from stillhouse.pipeline.steps.spec import Report, Step, flag_of

VERDICT = "validation"
RETRIEVERS = ("encoder", "retriever")
"""The outputs that are models of sentence-transformers; each gets a card."""
ORDER, READ = "order", "read"
"""Facts of an output: the order of the folders that were given to ports that take many, and the digests of what the
step read outside the run."""


def execute(
    step: Step, config: Any, inputs: Mapping[str, Path], outputs: Mapping[str, Path], shares: Path | None = None
) -> Report:
    """Runs `step` from input folders to output folders.

    Raises `InputError` for missing, damaged or mismatched inputs, before any work is done, and for places that may not
    be written. Raises `ValidationFailed` after the outputs were written if the step reports the fact `passed` as false.

    Progress that survives a kill is kept in a work folder, which is named by the digest of the step's version, the
    libraries, settings, inputs and the device. It is removed after success, or by a run of the step `DAYS` days later.
    If another process does the same work, this one waits; if another one writes to one of the outputs, it raises
    `InputError`. Metrics go to Prometheus if the environment asks for that. The log is never silent for ten seconds.
    `shares` is passed to the step as `Context.shares`.
    """
    quiet = run_context.quiet() or run_context.rank() > 0
    with watch(step.name, run_context.say) as under_watch, access_errors(), watched(step.name, quiet):
        under_watch.report = _execute(step, config, inputs, outputs, under_watch.monitor, shares)
    return under_watch.report


def _execute(
    step: Step,
    config: Any,
    inputs: Mapping[str, Path],
    outputs: Mapping[str, Path],
    monitor: Monitor,
    shares: Path | None,
) -> Report:
    started = time.monotonic()
    run_context.hush_libraries()
    inputs, digests = checked(step, inputs, outputs)
    if run_context.world_size() > 1 and not step.parallel:
        raise InputError(f"step '{step.name}' runs in one process; start it without torchrun")
    with doing("loading PyTorch"):
        machine = computed_on(config)
    context = Context(
        work=run_context.work_root() / work_name(step, config, digests, machine),
        device=run_context.device(),
        engine=run_context.engine(),
        quiet=run_context.quiet() or run_context.rank() > 0,
        monitor=monitor,
        shares=shares,
    )
    if run_context.rank() > 0:  # works with the first process; only that one writes
        context.work.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as unread:  # for outputs that nobody reads
            staged = {port.name: Path(unread) / port.name for port in step.outputs}
            for path in staged.values():
                path.mkdir()
            return step.run(config, inputs, staged, context)
    with only_process(context.work, wait=context.log):
        context.work.mkdir(parents=True, exist_ok=True)
        old = remove_old_work(context.work.parent, step.name, context.work.name)
        if old:
            context.log(f"[{step.name}] removed unfinished work that is more than {DAYS} days old: {', '.join(old)}")
        names = [port.name for port in step.outputs]
        with doing("computing the digests of its inputs"):
            outside = read_outside(step, config)
        with whole_folders([outputs[name] for name in names]) as folders:
            staged = dict(zip(names, folders))
            with _lacking(inputs):
                report = step.run(config, inputs, staged, context)
            order = step.order_of(inputs)
            facts = report.facts | ({ORDER: order} if order else {}) | ({READ: outside} if outside else {})
            with doing("computing the digests of its outputs"):
                for port, folder in zip(step.outputs, folders):
                    if port.name in RETRIEVERS and (folder / MODULES).is_file():
                        # Not above: it loads the hub's library, as only such steps do.
                        from stillhouse.pipeline.steps.model_card import write_card

                        write_card(folder, step.name, config, inputs, report, (outside or {}).get("model", ""))
                    beside = {name: read_manifest(staged[name], verify=False).digest for name in port.beside}
                    write_manifest(folder, step.name, recorded(config), digests | beside, facts, step.version)
        shutil.rmtree(context.work, ignore_errors=True)
    seconds = time.monotonic() - started
    written = ", ".join(str(outputs[port.name]) for port in step.outputs)
    read = ", ".join(str(path) for path in inputs.values()) or "its source"
    context.log(f"[{step.name}] read {read}; {report.summary}; wrote {written} in {seconds:.1f} s")
    if report.facts.get("passed") is False:
        raise ValidationFailed(f"{report.summary}; the report is in {written}", report)
    return report


@contextmanager
def _lacking(inputs: Mapping[str, Path]) -> Iterator[None]:
    """Raises `InputError` for an input without a file that the step reads, such as the output of another step."""
    try:
        yield
    except FileNotFoundError as error:
        for name, folder in inputs.items():
            if Path(error.filename or str(error)).absolute().is_relative_to(folder.absolute()):
                raise InputError(f"{name}: {folder} is not what this step reads ({error}); give another") from error
        raise


def work_name(step: Step, config: Any, digests: Mapping[str, str], machine: Sequence[str] = ()) -> str:
    """The name of a step's work folder, the same for the same version, libraries, settings and inputs.

    `digests` are those of the inputs, and `machine` is what `computed_on` returns. The name also depends on settings
    that are places, since nothing else distinguishes two sources before they are read.
    """
    made_of = [step.name, step.version, asdict(config), digests, software(), list(machine)]
    return f"{step.name}-{digest_json(made_of)[:20]}"


def computed_on(config: Any) -> tuple[str, ...]:
    """The kind of device that a step with a model computes on, and its precision there; empty for other steps.

    Raises `InputError` if a GPU was requested and there is none.
    """
    if not hasattr(config, "precision"):
        return ()
    from stillhouse.models.acceleration.device import computed_in  # imports torch, as such a step does in any case

    device = Context(run_context.work_root(), run_context.device()).torch_device()
    # Neither the GPU's model nor the number of threads: they affect only the last digits, and a retry runs on whatever
    # node is free, where a training of days would start over. `auto` is in the settings; what it resolves to is not.
    return device.type, str(computed_in(config.precision, device))


def checked(
    step: Step, inputs: Mapping[str, Path], outputs: Mapping[str, Path]
) -> tuple[dict[str, Path], dict[str, str]]:
    """The inputs that were given, and their digests. Raises `InputError` for wrong inputs and outputs."""
    inputs = {name: Path(path) for name, path in inputs.items() if path}
    with doing("verifying the digests of its inputs"):
        manifests = open_inputs(step, inputs)
    refuse_mismatch(step, manifests)
    refuse_outputs(inputs, outputs)
    return inputs, {name: manifest.digest for name, manifest in manifests.items()}


def open_inputs(step: Step, inputs: Mapping[str, Path]) -> dict[str, Manifest]:
    """Reads and verifies the manifest of every input that was given."""
    manifests = {}
    for port in step.inputs:
        keys = port.keys(inputs)
        if not keys and not port.optional:
            needed = f"at least one {port.flag} {port.takes}" if port.many else port.flag
            raise InputError(f"step '{step.name}' needs {needed}: {port.help}")
        for key in keys:
            folder = inputs[key]
            of_file = port.file and folder.is_file()
            manifests[key] = foreign_manifest(folder) if of_file else manifest_of(folder, port.kind, verify=True)
            if key == VERDICT and not manifests[key].facts.get("passed"):
                raise InputError(
                    f"{folder}: the corpus did not pass validation; open its report.html and fix the corpus"
                )
    return manifests


def manifest_of(folder: Path, kind: str, *, verify: bool = False) -> Manifest:
    """The manifest of an input."""
    return (model_manifest if kind == "model" else read_manifest)(folder, verify=verify)


def refuse_other_model(step: Step, inputs: Mapping[str, Path], index: str, model: str) -> None:
    """Refuses an index that another model made. `index` and `model` are keys of inputs."""
    if manifest_of(inputs[index], "data").inputs.get("retriever") != manifest_of(inputs[model], "model").digest:
        raise InputError(
            f"{step.name}: {flag_of(index)} was made by another model than {flag_of(model)}; run `stillhouse index` "
            "with this model"
        )


def refuse_mismatch(step: Step, manifests: Mapping[str, Manifest]) -> None:
    """Refuses a data input that was made from something other than the step's own input of the same name."""
    for name, manifest in manifests.items():
        port = step.port_of(name)
        if port.kind != "data":
            continue
        for source, digest in manifest.inputs.items():
            if source not in (port.agrees_on or manifests):
                continue
            if source in manifests and manifests[source].digest != digest:
                raise InputError(
                    f"step '{step.name}': {flag_of(name)} was made from another {source} than the {flag_of(source)} "
                    f"given here; run step '{manifest.step}' again with this {source}"
                )


def refuse_outputs(inputs: Mapping[str, Path], outputs: Mapping[str, Path]) -> None:
    """Refuses outputs that would replace something that no step wrote, and folders that lie inside one another."""
    for name, path in outputs.items():
        path = Path(path)
        refuse_foreign(path, flag_of(name))
        for other, place in [*inputs.items(), *((key, value) for key, value in outputs.items() if key != name)]:
            one, two = path.resolve(), Path(place).resolve()
            if one == two or one in two.parents or two in one.parents:
                raise InputError(
                    f"{flag_of(name)} {path} and {flag_of(other)} {place} overlap; give each a folder of its own"
                )


def write_report(path: Path, report: Report) -> None:
    """Writes the part of a step's report that its outputs do not hold: its summary, metrics and the name of its
    page."""
    write_whole_json(path, {"summary": report.summary, "metrics": report.metrics, "html": report.html})


def read_report(path: Path, facts: Mapping[str, Any]) -> Report:
    """The report that `write_report` wrote, with the `facts` of the manifests. Raises `InputError` for another file."""
    try:
        return Report(**json.loads(path.read_text(encoding="utf-8")), facts=dict(facts))
    except (OSError, ValueError, TypeError):
        raise InputError(f"{path} is missing, or was not written by a step") from None
