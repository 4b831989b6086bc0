"""The parts of a run of `sentence_transformers_recipe.py`: each runs once, in a folder of its own, and is timed."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from stillhouse.acceleration.precision import has_bf16
from stillhouse.artifacts import whole_folder
from stillhouse.config import build
from stillhouse.context import Context
from stillhouse.steps.execute import execute
from stillhouse.steps.registry import find_step

OURS, PEER = "stillhouse", "sentence-transformers"
START = "the start"
SYSTEMS = (f"{OURS}, mined", f"{OURS}, distilled", f"{PEER}, mined", f"{PEER}, distilled")
TEMPERATURE = 0.05
"""Of the contrastive losses of both: `scale` 20, which sentence-transformers has by itself."""
COST = "cost.json"


@dataclass(frozen=True)
class Budget:
    """What both sides have: the settings of the command line."""

    steps: int
    batch: int
    reranker_steps: int
    learning_rate: float
    length: int
    bf16: bool
    seed: int

    @property
    def precision(self) -> str:
        return "bf16" if self.bf16 else "fp32"

    def encodings(self) -> int:
        """Texts that a final model has encoded in training."""
        return 3 * self.steps * self.batch * 3


class Run:
    """All parts of a run, each made once in a folder of its own, with the seconds that it took."""

    def __init__(self, arguments: argparse.Namespace, source: Path) -> None:
        arguments.folder.mkdir(parents=True, exist_ok=True)
        self.arguments, self.source, self.root = arguments, source, arguments.folder
        self.device: torch.device = Context(self.root, quiet=True).torch_device()
        self.budget = Budget(
            arguments.steps,
            arguments.batch,
            arguments.reranker_steps,
            arguments.learning_rate,
            arguments.length,
            has_bf16(self.device),
            arguments.seed,
        )
        settings = {
            name: str(value) for name, value in vars(arguments).items() if name not in ("page", "folder", "data")
        }
        known = self.root / "settings.json"
        if known.is_file() and json.loads(known.read_text(encoding="utf-8")) != settings:
            raise SystemExit(f"{self.root} holds a run with other settings; give another --folder")
        known.write_text(json.dumps(settings), encoding="utf-8")

    def __truediv__(self, name: str) -> Path:
        return self.root / name

    def timed(self, name: str, make: Callable[[], object]) -> None:
        """Makes a part that is not there, and adds its seconds to those that are known."""
        started = time.monotonic()
        make()
        known = self.seconds()
        (self / COST).write_text(json.dumps(known | {name: time.monotonic() - started}), encoding="utf-8")
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr)

    def seconds(self) -> dict[str, float]:
        path = self / COST
        found: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return found

    def step(self, use: str, step: str, inputs: dict[str, Path], outputs: tuple[str, ...], **settings: object) -> Path:
        """Runs a step into the folder of its use, and gives that."""
        places = {port: self / use / port for port in outputs}
        if not all(place.is_dir() for place in places.values()):
            found = find_step(step)
            self.timed(use, lambda: execute(found, build(found.config, settings, use), inputs, places))
        return self / use

    def prepare(self) -> None:
        limits = {
            f"max_{split}_queries": vars(self.arguments)[f"{split}_queries"] for split in ("train", "dev", "test")
        }
        self.corpus = self.step("ingest", "ingest", {}, ("corpus",), source=str(self.source), **limits) / "corpus"
        cut = {"query_length": self.budget.length, "passage_length": self.budget.length}
        self.start = self.step("start", "fetch-model", {}, ("encoder",), model=self.arguments.model, **cut) / "encoder"

    def indexed(self, name: str, retriever: Path) -> Path:
        """The index of a retriever."""
        inputs = {"corpus": self.corpus, "retriever": retriever}
        return self.step(f"{name} index", "index", inputs, ("index",)) / "index"

    def run_of(self, name: str, retriever: Path) -> Path:
        inputs = {"corpus": self.corpus, "retriever": retriever, "index": self.indexed(name, retriever)}
        return self.step(f"{name} run", "retrieve", inputs, ("run",), depth=100) / "run"

    def saved(self, name: str, make: Callable[[Path], object]) -> Path:
        """A folder that `make` fills, whole or not at all."""
        place = self / name

        def whole() -> None:
            with whole_folder(place) as staging:
                make(staging)

        if not place.is_dir():
            self.timed(name, whole)
        return place

    def retriever(self, system: str) -> Path:
        """A system's model as a folder whose texts are cut alike."""
        if system == START:
            return self.start
        if system.startswith(OURS):
            return self / system / "retriever"
        cut = {"query_length": self.budget.length, "passage_length": self.budget.length}
        return (
            self.step(f"{system} model", "fetch-model", {}, ("encoder",), model=str(self / system), **cut) / "encoder"
        )
