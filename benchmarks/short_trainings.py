"""How many dev questions must a short training be measured on? Writes short_trainings.md beside this.

    OMP_NUM_THREADS=1 python benchmarks/short_trainings.py --folder build/quality [--cell medquad-300-1 …]

A training keeps the start or its last step, whichever has the lower loss on a sample of the dev questions. This trains
the distilled retriever of finished runs of quality.py again and counts how often samples of a size keep the last step.
Finished runs are kept in short_trainings.measured.json, so a stopped run continues where it was.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import yaml
from kept import read_kept, write_kept
from machine import machine
from notes import write_page
from quality_cells import CELLS, SETS
from torch import Tensor, nn

from stillhouse.acceleration.precision import autocast
from stillhouse.config import build
from stillhouse.retrieval.fine_tuning import retriever_training
from stillhouse.retrieval.fine_tuning.dev_ranking import sample
from stillhouse.steps.execute import execute
from stillhouse.steps.train_retriever import STEP
from stillhouse.training.batches import chunks

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "short_trainings.measured.json"
SAMPLES = {45: 16, 100: 8}
"""How many samples of each size are drawn."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="the folder of quality.py, with a folder per cell")
    names = [cell.name for cell in CELLS]
    parser.add_argument("--cell", nargs="+", choices=names, default=["medquad-300-1", "squad-passages-300-1"])
    arguments = parser.parse_args(argv)
    found = read_kept(MEASURED)
    for name in arguments.cell:
        if name not in found:
            found[name] = measured(arguments.folder.resolve() / name / "ours")
            write_kept(MEASURED, found)
    write_page(HERE / "short_trainings.md", page_lines(found))
    return 0


def measured(run: Path) -> dict[str, Any]:
    """The losses of the start and of the last step of the distilled retriever, for each sample of the dev questions."""
    settings = yaml.safe_load((run / "params.yaml").read_text(encoding="utf-8"))["distilled"]
    settings |= {"eval_steps": 10**6, "eval_share": None, "eval_queries": None}
    inputs = {
        "corpus": run / "artifacts/ingest/corpus",
        "encoder": run / "artifacts/retriever_2/retriever",
        "negatives": run / "artifacts/mine_2/negatives",
        "teacher": run / "artifacts/teacher/teacher",
    }
    losses: dict[str, dict[str, list[float]]] = {}
    original = retriever_training.train_on_groups

    def train(model: nn.Module, samplers: Any, draw: Any, loss: Any, score: Any, reads: Any, *rest: Any) -> Any:
        config, context = rest
        total = len(samplers["dev"])

        def of_samples() -> dict[str, list[float]]:
            sizes = {**SAMPLES, total: 1}
            model.eval()
            with torch.no_grad(), autocast(config.precision, context.torch_device()):
                return {
                    str(size): [of_queries(sample(total, size, seed)) for seed in range(count)]
                    for size, count in sizes.items()
                }

        def of_queries(dev: np.ndarray) -> float:
            parts = [dev[places] for places in chunks(len(dev), config.batch_size)]
            values = [len(part) * summed(loss("dev", draw("dev", part, np.zeros_like(part)))) for part in parts]
            return sum(values) / len(dev)

        losses["start"] = of_samples()
        rows = original(model, samplers, draw, keeps_the_last_step(loss), score, reads, config, context)
        losses["end"] = of_samples()
        return rows

    with TemporaryDirectory() as folder, patch.object(retriever_training, "train_on_groups", train):
        os.environ["STILLHOUSE_WORK"] = f"{folder}/work"
        outputs = {"retriever": Path(folder) / "retriever", "curves": Path(folder) / "curves"}
        execute(STEP, build(STEP.config, settings, "distilled"), inputs, outputs)
    return {"losses": losses, "machine": machine("torch", "transformers")}


def keeps_the_last_step(loss: Callable[..., Any]) -> Callable[..., Any]:
    """The loss, but every loss on dev questions is lower than the one before, so that the last step is kept."""
    measured = iter(range(0, -(10**9), -1))
    return lambda split, drawn: torch.tensor(float(next(measured))) if split == "dev" else loss(split, drawn)


def summed(value: Any) -> float:
    return float(value) if isinstance(value, Tensor) else sum(map(float, value))


def page_lines(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = ["# How many dev questions a short training is measured on", ""]
    lines += ["`python benchmarks/short_trainings.py --folder build/quality`", ""]
    lines += ["The loss of the start and of the last step of the distilled retriever on samples of the dev questions."]
    lines += ["`keeps` is the share of the samples that keep the last step.", ""]
    lines += ["| run | dev questions | samples | start | last step | difference, ± its spread over samples | keeps |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for name, run in found.items():
        corpus, labels, seed = name.rsplit("-", 2)
        for size, start in run["losses"]["start"].items():
            before, after = np.array(start), np.array(run["losses"]["end"][size])
            change, keeps = after - before, np.mean(after < before)
            spread = f" ± {change.std():.4f}" if len(start) > 1 else ""
            figures = f"{before.mean():.4f} | {after.mean():.4f} | {change.mean():+.4f}{spread} | {keeps:.0%}"
            lines.append(f"| {SETS[corpus]}, {labels} labels, seed {seed} | {size} | {len(start)} | {figures} |")
    return [*lines, "", *sorted({run["machine"] for run in found.values()})]


if __name__ == "__main__":
    sys.exit(main())
