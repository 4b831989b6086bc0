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

    Other steps read `folder`; `folders` has every output by its name in docs/steps.md, and each is an attribute too.
    `summary` is a readable line, `metrics` are the step's scalars, and `facts` is what the manifest records.

        first = stillhouse.train_retriever(corpus, start, mined, "work/first")
        losses = first.curves / "curves.csv"
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

    def __getattr__(self, name: str) -> Path:
        folders = self.__dict__.get("folders", {})
        if name not in folders:
            raise AttributeError(f"{type(self).__name__} has no {name!r}; its outputs are {', '.join(folders)}")
        return Path(folders[name])


class Evaluation(StepResult):
    """The evaluation of several systems."""

    @property
    def figures(self) -> dict[str, dict[str, float]]:
        """The mean of each measure over the test queries, by system, as in the report."""
        read = json.loads((self.folder / "metrics.json").read_text(encoding="utf-8"))
        return {system: read[system] for system in self.facts["systems"]}

    @property
    def report(self) -> Path:
        """The report, a single HTML page."""
        return self.folder / "report.html"
