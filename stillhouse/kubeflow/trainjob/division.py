"""The work of a step on one corpus, divided into shards: the part for each shard, and the combined result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stillhouse.core.artifacts import read_manifest, whole_folder, write_manifest
from stillhouse.core.config import build, field_types
from stillhouse.core.errors import InputError
from stillhouse.kubeflow.pods.several_processes import step_words
from stillhouse.kubeflow.trainjob.launch import put_inputs
from stillhouse.kubeflow.trainjob.parts import Part
from stillhouse.pipeline.steps.execute import checked, work_name
from stillhouse.pipeline.steps.registry import find_step
from stillhouse.pipeline.steps.spec import DIVIDED, Step


class Division:
    """How a step's corpus is divided into `shards`. Raises `InputError` for wrong inputs."""

    def __init__(self, step: Step, config: Any, inputs: Mapping[str, Path], shards: int) -> None:
        inputs, digests = checked(step, inputs, {})
        self.part, self.shards = find_step(DIVIDED[step.name]), shards
        self.config = {name: getattr(config, name) for name in field_types(self.part.config) if hasattr(config, name)}
        self.inputs = {port.name: inputs[port.name] for port in self.part.inputs if port.name in inputs}
        own = {name: digests[name] for name in self.inputs}
        self.name = work_name(self.part, config, own, [str(shards)])
        """The name of this work: the same for the same code, settings, inputs and number of shards."""

    def parts(self, folder: Path) -> list[Part]:
        """The part for each shard, with its inputs and outputs in `folder`."""
        there, parts = put_inputs(folder, self.inputs), []
        for number in range(1, self.shards + 1):
            own: Any = build(self.part.config, self.config | {"shard": number, "shards": self.shards}, self.part.name)
            words = step_words(self.part, own, there, self._outputs(folder, number))
            parts.append(Part(tuple(words), self.part.parallel))
        return parts

    def together(self, folder: Path) -> Path:
        """The results of the parts in `folder`, as `Context.shares`."""
        if self.part.name != "count":
            return folder / "shards"
        numbers = range(1, self.shards + 1)
        return add_up([made for number in numbers for made in self._outputs(folder, number).values()], folder / "sum")

    def _outputs(self, folder: Path, number: int) -> dict[str, Path]:
        [port] = self.part.outputs
        return {port.name: folder / "shards" / f"shard-{number:04}"}


def add_up(shards: Sequence[Path], folder: Path) -> Path:
    """Adds the `count` folders of all shards into one: the counts of the whole corpus."""
    from stillhouse.pretraining.ngram_files import merge_counts

    manifests = [read_manifest(shard) for shard in shards]
    numbers = sorted(manifest.facts["shard"] for manifest in manifests)
    if not numbers or numbers != list(range(1, manifests[0].facts["shards"] + 1)):
        raise InputError(f"the counts cover the shards {numbers}, not each shard once; start the run again")
    with whole_folder(folder) as staging, TemporaryDirectory() as work:
        saved = merge_counts(list(shards), staging, Path(work))
        facts = {f"distinct_{n}_grams": count for n, count in enumerate(saved.distinct, start=1)}
        write_manifest(staging, "count", {"window": manifests[0].config["window"]}, manifests[0].inputs, facts)
    return folder
