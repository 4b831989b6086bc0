"""The work of a step on one corpus, shared by nodes: each encodes or counts a shard, and the pod takes them all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stillhouse.artifacts import read_manifest, whole_folder, write_manifest
from stillhouse.config import build, field_types
from stillhouse.errors import InputError
from stillhouse.steps.execute import open_inputs, refuse_mismatch, work_name
from stillhouse.steps.registry import find_step
from stillhouse.steps.sharding import DIVIDED
from stillhouse.steps.spec import Step
from stillhouse.surfaces.several_processes import step_words
from stillhouse.trainjob.cluster import Cluster
from stillhouse.trainjob.exchange import put_inputs
from stillhouse.trainjob.launch import run_job
from stillhouse.trainjob.parts import Part, Parts
from stillhouse.trainjob.settings import NodeSettings

PART_PROGRAM = ("python3", "-m", "stillhouse.trainjob.part")


@contextmanager
def shared_work(
    step: Step, config: Any, inputs: Mapping[str, Path], settings: NodeSettings, cluster: Cluster | None = None
) -> Iterator[Path]:
    """A folder of what the nodes made of the shards of a step's corpus, as `Context.shares`; removed after the block.

    There are as many shards as nodes. Raises as `execute_on_nodes` does.
    """
    inputs = {name: Path(path) for name, path in inputs.items() if path}
    manifests = open_inputs(step, inputs)
    refuse_mismatch(step, manifests)
    part = find_step(DIVIDED[step.name])
    shared = {name: getattr(config, name) for name in field_types(part.config) if hasattr(config, name)}
    ports = {port.name: inputs[port.name] for port in part.inputs if port.name in inputs}

    def command(parts: Parts) -> list[str]:
        there = put_inputs(parts.folder, ports)
        made = []
        for number in range(1, settings.nodes + 1):
            own: Any = build(part.config, shared | {"shard": number, "shards": settings.nodes}, part.name)
            made.append(Part(tuple(step_words(part, own, there, _outputs(part, parts.folder, number))), part.parallel))
        parts.write(made)
        return [*PART_PROGRAM, str(parts.folder)]

    work = work_name(part, config, {name: manifests[name].digest for name in ports}, [str(settings.nodes)])
    parts = run_job(part.name, work, settings, Parts, command, cluster)
    parts.refuse_missing()
    shards = [
        folder for number in range(1, settings.nodes + 1) for folder in _outputs(part, parts.folder, number).values()
    ]
    yield add_up(shards, parts.folder / "sum") if part.name == "count" else parts.folder / "shards"
    shutil.rmtree(parts.folder / "inputs", ignore_errors=True)


def run_parts(
    name: str, work: str, parts: Sequence[Part], settings: NodeSettings, cluster: Cluster | None = None
) -> None:
    """Has nodes do `parts`, whose outputs lie on the shared volume. Raises as `execute_on_nodes` does."""

    def command(shared: Parts) -> list[str]:
        shared.write(parts)
        return [*PART_PROGRAM, str(shared.folder)]

    run_job(name, work, settings, Parts, command, cluster).refuse_missing()


def _outputs(part: Step, folder: Path, number: int) -> dict[str, Path]:
    [port] = part.outputs
    return {port.name: folder / "shards" / f"shard-{number:04}"}


def add_up(shards: Sequence[Path], folder: Path) -> Path:
    """Writes the sum of what `count` wrote of every shard as one count folder: the counts of the whole corpus."""
    from stillhouse.pretraining.ngram_files import merge_counts

    manifests = [read_manifest(shard) for shard in shards]
    numbers = sorted(manifest.facts["shard"] for manifest in manifests)
    if not numbers or numbers != list(range(1, manifests[0].facts["shards"] + 1)):
        raise InputError(f"the counts are of the shards {numbers}, and not of each once; start the run again")
    with whole_folder(folder) as staging, TemporaryDirectory() as work:
        saved = merge_counts(list(shards), staging, Path(work))
        facts = {f"distinct_{n}_grams": count for n, count in enumerate(saved.distinct, start=1)}
        config = {name: manifests[0].config[name] for name in ("window", "unit")}
        write_manifest(staging, "count", config, manifests[0].inputs, facts)
    return folder
