"""Every step, and the commands that run several, on paths from the user and in the cheapest way that writes."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from beir_source import write_beir

from stillhouse import cli
from stillhouse.cli import compare as compare_command
from stillhouse.core.artifacts import whole_folder, write_manifest
from stillhouse.core.errors import InputError
from stillhouse.experiments.comparison import results as comparison_results
from stillhouse.pipeline.steps import execute, registry
from stillhouse.pipeline.steps.spec import Report


@dataclasses.dataclass(frozen=True)
class Case:
    """A command line that writes below a folder. `prepare` makes it cheap.

    `again` is the exit code of a second run.
    """

    words: Callable[[Path, Path], list[object]]
    prepare: Callable[[pytest.MonkeyPatch, Path], None] = lambda patch, inputs: None
    again: int = 0

    def run(self, there: Path, inputs: Path) -> int:
        return cli.main([str(word) for word in self.words(there, inputs)])


def stand_ins(patch: pytest.MonkeyPatch, inputs: Path) -> None:
    """Replaces every step by one that writes a page and a digest of its settings and inputs."""

    def run(config: Any, read: Any, outputs: Any, context: Any) -> Report:
        (context.work / "half.txt").write_text("half")
        texts = [(folder / "data.txt").read_text() for _, folder in sorted(read.items())]
        for folder in outputs.values():
            (folder / "part").mkdir()
            (folder / "part" / "page.html").write_text("a page")
            (folder / "data.txt").write_text(hashlib.sha256(repr((config, texts)).encode()).hexdigest())
        return Report("done", metrics={"figure": 1.0}, facts={"passed": True})

    known_code(patch)
    for name, step in list(registry.steps().items()):
        patch.setitem(registry.steps(), name, dataclasses.replace(step, run=run))


def known_code(patch: pytest.MonkeyPatch) -> None:
    """Keeps steps from looking up all libraries to name their work."""
    patch.setattr(execute, "software", dict)


def artifact(folder: Path) -> Path:
    with whole_folder(folder) as staging:
        (staging / "data.txt").write_text("read")
        write_manifest(staging, "step", {}, {}, {"passed": True})
    return folder


def step_case(name: str) -> Case:
    step = registry.steps()[name]

    def words(there: Path, inputs: Path) -> list[object]:
        found: list[object] = [name]
        for port in step.inputs:
            found += [port.flag, f"one={inputs / port.name}" if port.many else inputs / port.name]
        for port in step.outputs:
            found += [port.flag, there / port.name]
        return [*found, "--report", there / "report.json", "--work", there / "w"]

    def prepare(patch: pytest.MonkeyPatch, inputs: Path) -> None:
        stand_ins(patch, inputs)
        for port in step.inputs:
            artifact(inputs / port.name)

    return Case(words, prepare)


def compare_quickly(patch: pytest.MonkeyPatch, inputs: Path) -> None:
    def write(plan: object, failures: object, folder: Path, target: Path) -> Path:
        for name in compare_command.results():
            (target / name).write_text("a table")
        return target / "comparison.html"

    stand_ins(patch, inputs)
    patch.setattr(comparison_results, "write_comparison", write)


def beir(patch: pytest.MonkeyPatch, inputs: Path) -> None:
    """A corpus in which one query is a passage, so that `zero-shot` writes runs too."""
    known_code(patch)
    texts = ["red bird", "red fish", "green fish"]
    write_beir(inputs / "colours", texts, {"p0": "red bird"}, test=[("p0", "p1")])


def never_served(patch: pytest.MonkeyPatch, inputs: Path) -> None:
    from stillhouse.cli import label

    known_code(patch)
    patch.setattr(label, "serve", lambda server: server.server_close())


def tune_quickly(patch: pytest.MonkeyPatch, inputs: Path) -> None:

    from stillhouse.experiments.tuning import search
    from stillhouse.pipeline.recipes import find_recipe

    stand_ins(patch, inputs)
    patch.setattr(search, "measure_dev", lambda *given: [1.0])
    (inputs / "params.yaml").write_text(find_recipe("labelled").read_text())


def tune_words(inputs: Path) -> list[object]:
    return ["tune", "--params", inputs / "params.yaml", "--quiet"]


RUN = ["--recipe", "micro", "--until", "bm25", "--quiet"]
COMPARED = ["--recipe", "micro", "--objectives", "mlm", "--seeds", "1", "--quiet"]
FEW = ["--measures", "RR@2", "--depth", 2, "--bootstrap-samples", 100, "--randomisation-samples", 100, "--quiet"]


CASES: dict[str, Case] = {name: step_case(name) for name in registry.steps()} | {
    "new": Case(
        lambda there, inputs: ["new", there / "f", "--source", "sample", "--recipe", "micro"],
        again=InputError.exit_code,
    ),
    "label": Case(lambda there, inputs: ["label", "sample", there / "f", "--port", 0], never_served),
    "run": Case(lambda there, inputs: ["run", *RUN, "--folder", there / "f"], stand_ins),
    "compare": Case(lambda there, inputs: ["compare", *COMPARED, "--folder", there / "f"], compare_quickly),
    "zero-shot": Case(lambda there, inputs: ["zero-shot", inputs / "colours", *FEW, "--folder", there / "f"], beir),
    "tune": Case(lambda there, inputs: [*tune_words(inputs), "--trials", 1, "--folder", there / "f"], tune_quickly),
}
