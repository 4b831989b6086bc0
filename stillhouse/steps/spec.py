"""What a step declares of itself; the command line, dvc.yaml and the Kubeflow components are derived from it.

A step module stays cheap to import (no torch, pandas or faiss at its top), because every surface reads all of them:

    @dataclass(frozen=True, kw_only=True)
    class Config: ...

    def run(config, inputs, outputs, context) -> Report: ...

    STEP = Step("mine", "finds hard negatives …", Config, inputs=(...), outputs=(...), run=run)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stillhouse.context import Context

Paths = Mapping[str, Path]


@dataclass(frozen=True)
class Port:
    """An input or output folder of a step.

    `kind` "data" is tied to the corpus it came from: a step refuses it when it was made from something other than the
    step's other inputs. `kind` "model" is free to be used with any corpus, and may come from outside Stillhouse.
    `agrees_on` names the inputs that a data port must share with the step where these are not all: negatives that
    another retriever mined are of the same corpus. `holds` is "Model" or "Dataset", what Kubeflow shows it as.
    """

    name: str
    help: str
    kind: str = "data"
    optional: bool = False
    agrees_on: tuple[str, ...] = ()
    holds: str = ""

    def __post_init__(self) -> None:
        if not self.holds:
            object.__setattr__(self, "holds", "Model" if self.kind == "model" else "Dataset")

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


@dataclass(frozen=True)
class Report:
    """What a step tells at its end: scalars for dashboards, facts for the manifests, one line for a person."""

    summary: str
    metrics: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    html: str = ""
    """File name, inside the first output, of a page that a person would open."""


@dataclass(frozen=True)
class Step:
    """A step: its name on the command line, one line of help, its settings, its folders and its function."""

    name: str
    help: str
    config: type
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    run: Callable[[Any, Paths, Paths, Context], Report]
    parallel: bool = False
    """Whether several processes may work on it, started by torchrun."""

    @property
    def identifier(self) -> str:
        """The name as Python and Kubeflow write it."""
        return self.name.replace("-", "_")
