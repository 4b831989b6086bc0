"""Fake steps for searches, which take no time: the dev figure of a training is a known function of its settings."""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stillhouse.core.curves import CurveRow, write_curves
from stillhouse.experiments.tuning import search
from stillhouse.pipeline.recipes import find_recipe, load_recipe
from stillhouse.pipeline.steps import execute, registry
from stillhouse.pipeline.steps.spec import Report

RECIPE = load_recipe(find_recipe("labelled"))
POINTS = 10
"""Number of dev measurements of a training, after the one at its start."""
GRID = """\
settings:
  retriever_1.learning_rate: {choices: [1.0e-5, 2.0e-5, 4.0e-5, 8.0e-5]}
  retriever_1.temperature: {choices: [0.02, 0.05]}
"""
RANGES = """\
settings:
  retriever_1.learning_rate: {min: 1.0e-6, max: 1.0e-3, scale: log}
  retriever_1.temperature: {min: 0.01, max: 0.2, scale: log}
"""


def worth(learning_rate: float, temperature: float) -> float:
    """Return the dev figure of a training: best at a learning rate of 5e-5 and a temperature of 0.04."""
    far = abs(math.log(learning_rate / 5e-5)) + abs(math.log(temperature / 0.04))
    return 0.9 - 0.1 * far


class Steps:
    """Records the names of the steps that ran, and the number of measurements of all trainings."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.points = 0
        self.at_point: Callable[[int], None] = lambda count: None

    def step(self, name: str) -> Any:
        def run(config: Any, inputs: Any, outputs: Any, context: Any) -> Report:
            self.ran.append(name)
            read = [(folder / "data.txt").read_text() for _, folder in sorted(inputs.items())]
            text = hashlib.sha256(repr((config, read)).encode()).hexdigest()
            if name == "train-retriever":
                text = self.train(config, outputs, context)
            elif name == "index":
                text = (inputs["retriever"] / "data.txt").read_text()
            for folder in outputs.values():
                (folder / "data.txt").write_text(text)
            return Report("done", facts={"passed": True})

        return run

    def train(self, config: Any, outputs: Any, context: Any) -> str:
        end, rows = worth(config.learning_rate, config.temperature), [CurveRow(0, 1.0, 1.0, {"dev_RR@10": 0.5})]
        context.monitor.curve(rows, POINTS)
        for point in range(1, POINTS + 1):
            self.points += 1
            rows.append(CurveRow(point, 1.0, 1.0, {"dev_RR@10": 0.5 + (end - 0.5) * point / POINTS}))
            context.monitor.curve(rows, POINTS)
            self.at_point(self.points)
        write_curves(outputs["curves"], rows)
        return f"{end:.6f}"


def install(patch: pytest.MonkeyPatch) -> Steps:
    """Replace all steps with fake ones, and the dev measurement with the known figure of the training."""
    steps = Steps()

    def measure(corpus: Path, retriever: Path, index: Path, context: Any) -> Any:
        return [float((index / "data.txt").read_text())] * 8

    for name, step in list(registry.steps().items()):
        patch.setitem(registry.steps(), name, dataclasses.replace(step, run=steps.step(name)))
    patch.setattr(execute, "software", dict)
    patch.setattr(search, "measure_dev", measure)
    return steps
