"""The results of the functions: a folder that the next function reads, and the figures of the step."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Folder = str | os.PathLike[str]
"""A folder from an earlier function: its result, a `Path` or a string."""


@dataclass(frozen=True, repr=False)
class StepResult(os.PathLike[str]):
    """The result of a step. It can be passed wherever a function, `open` or `load` takes its folder.

    Other steps read `folder`; `folders` has every output by its name in docs/steps.md. `summary` is a readable line,
    `metrics` are the step's scalars, and `facts` is what the manifest records.
    """

    folder: Path
    folders: Mapping[str, Path]
    summary: str
    metrics: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __fspath__(self) -> str:
        return str(self.folder)

    def __repr__(self) -> str:
        return f"{self.folder}: {self.summary}"


class BM25Result(StepResult):
    """A BM25 index."""

    @property
    def run(self) -> Path:
        """The ranking of the dev and test queries."""
        return self.folders["run"]

    @property
    def negatives(self) -> Path:
        """The hard negatives of the train and dev queries."""
        return self.folders["negatives"]


class TrainingResult(StepResult):
    """A trained model."""

    @property
    def curves(self) -> Path:
        """The folder with the training and held-out losses."""
        return self.folders["curves"]


class QueryEncoderResult(TrainingResult):
    """A retriever whose query tower was trained alone, with the index that it keeps."""

    @property
    def index(self) -> Path:
        """Its index of the corpus."""
        return self.folders["index"]


class Winner(StepResult):
    """The retriever that ranks the dev queries best, with its index and its fusion with BM25."""

    @property
    def index(self) -> Path:
        """Its index of the corpus."""
        return self.folders["index"]

    @property
    def hybrid(self) -> Path:
        """Whether and how BM25 is combined with it."""
        return self.folders["hybrid"]


class Evaluation(StepResult):
    """The figures of several systems."""

    @property
    def figures(self) -> dict[str, dict[str, float]]:
        """System → measure → mean over the test queries, between 0 and 1; systems in the given order.

        `pandas.DataFrame(figures).T` has a row per system.
        """
        read = json.loads((self.folder / "metrics.json").read_text(encoding="utf-8"))
        return {system: read[system] for system in self.facts["systems"]}

    @property
    def report(self) -> Path:
        """The page with intervals, significance and examples."""
        return self.folder / "report.html"
