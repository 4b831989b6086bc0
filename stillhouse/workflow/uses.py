"""A use of a step: one node of a graph, with the sources of its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stillhouse.steps.registry import find_step
from stillhouse.steps.spec import Step

ARTIFACTS = Path("artifacts")


@dataclass(frozen=True)
class Use:
    """One use of a step. `inputs` maps the key of an input (a port, or `port/NAME` for a port that takes many) to
    `use/output` of an earlier use.

    Its settings are the recipe's section with its own name, or those of the use `settings_of`. `stands_in` maps an
    output to the `use/output` that is read instead if a recipe leaves the use out. `needs` are optional inputs of the
    step that this use requires.
    """

    name: str
    step_name: str
    inputs: Mapping[str, str] = field(default_factory=dict)
    settings_of: str = ""
    stands_in: Mapping[str, str] = field(default_factory=dict)
    needs: tuple[str, ...] = ()

    @property
    def section(self) -> str:
        return self.settings_of or self.name

    @property
    def step(self) -> Step:
        return find_step(self.step_name)

    @property
    def read_from(self) -> list[str]:
        """The uses whose outputs it reads."""
        return [used(source) for source in self.inputs.values()]

    def input_paths(self, root: Path = ARTIFACTS) -> dict[str, Path]:
        return {port: root / source for port, source in self.inputs.items()}

    def output_paths(self, root: Path = ARTIFACTS) -> dict[str, Path]:
        return {port.name: root / self.name / port.name for port in self.step.outputs}


def used(source: str) -> str:
    """The use of `use/output`."""
    return source.partition("/")[0]


def needed(uses: Iterable[Use], targets: Iterable[str]) -> list[Use]:
    """The uses that `targets` depend on, themselves included, in the order of `uses`."""
    uses = list(uses)
    wanted = set(targets)
    for use in reversed(uses):
        if use.name in wanted:
            wanted |= set(use.read_from)
    return [use for use in uses if use.name in wanted]


def dense(system: str, retriever: str, settings_of: str = "") -> tuple[Use, Use]:
    """The index and the run of one retriever (`use/output`); their settings may be those of another system."""
    corpus, gate = {"corpus": "ingest/corpus"}, {"validation": "validate/validation"}
    other = {part: f"{settings_of}_{part}" if settings_of else "" for part in ("index", "run")}
    inputs = {"retriever": retriever, "index": f"{system}_index/index"}
    return (
        Use(f"{system}_index", "index", corpus | gate | {"retriever": retriever}, other["index"]),
        Use(f"{system}_run", "retrieve", corpus | inputs, other["run"]),
    )
