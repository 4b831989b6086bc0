"""Compares a retriever's training step with sentence-transformers' trainer: same loss, batches and truncation.

    python -m benchmarks training [--data ../shared/data] [--rounds 3] [--steps 4] [--threads 1]

Both train all-MiniLM-L6-v2 on questions of squad-passages, each with its passage and BM25's best wrong passage, in the
same batches and order. Ours is the training loop and loss of `train-retriever` with `contrastive: plain`; the other is
`SentenceTransformerTrainer` with `MultipleNegativesRankingLoss`. They take turns in one process. A turn trains for a
few steps and does not count the first. In a round both sides have a turn with every setting, and the page shows the
median over the rounds. Needs `pip install datasets accelerate`.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from benchmarks.clock import Clock
from benchmarks.command import command
from benchmarks.machine import machine
from benchmarks.page import from_template, write_page
from benchmarks.retriever_sides import Lengths, ours, theirs
from benchmarks.run_steps import step
from benchmarks.training_examples import MODEL, prepare_examples, read_examples
from benchmarks.training_sides import OURS, PEER, Setting, Side
from stillhouse.core.context import Context
from stillhouse.models.acceleration.device import has_bf16

LENGTHS = (Lengths(256, False), Lengths(128, False), Lengths(128, True))
POOLINGS = ("cls", "mean")
"""Vectors of the papers' recipes are states of [CLS], those of the model itself the mean of all states."""

Case = tuple[str, Lengths, str]
"""A pooling, lengths and a precision."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = command("training", __doc__)
    parser.add_argument("--batch", type=int, default=32, help="queries a step, each with a positive and a negative")
    parser.add_argument("--rounds", type=int, default=3, help="turns that each has in every setting")
    parser.add_argument("--steps", type=int, default=4, help="steps of a turn; the first is not counted")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args(argv)
    source = arguments.data / "squad-passages"
    if not source.is_dir():
        print(f"skipped: {source} is not here; give the folder of the data sets with --data", file=sys.stderr)
        return 0
    if not all(importlib.util.find_spec(name) for name in ("datasets", "accelerate")):
        print(f"skipped: {PEER} trains with others; pip install datasets accelerate", file=sys.stderr)
        return 0
    torch.set_num_threads(arguments.threads)
    with TemporaryDirectory() as folder:
        lines = compare(Path(folder), source, arguments)
    write_page(arguments.page, lines)
    return 0


def compare(folder: Path, source: Path, arguments: argparse.Namespace) -> list[str]:
    """The lines of the page."""
    prepare_examples(folder, source)
    examples = read_examples(folder, arguments.batch, arguments.rounds * arguments.steps)
    clock = Clock(Context(folder, quiet=True).torch_device())
    precisions = ["fp32", *(["bf16"] if has_bf16(clock.device) else [])]
    sides: dict[Case, dict[str, Side]] = {}
    for pooling, lengths in product(POOLINGS, LENGTHS):
        model = folder / f"{pooling}-{lengths.most}"
        if not model.is_dir():
            settings = {"pooling": pooling, "query_length": lengths.most, "passage_length": lengths.most}
            step("fetch-model", {}, {"encoder": model}, model=MODEL, **settings)
        for precision in precisions:
            setting = Setting(model, precision, arguments.steps, clock, folder)
            both = {OURS: ours(setting, examples, lengths), PEER: theirs(setting, examples, lengths)}
            sides[pooling, lengths, precision] = both
    for turn in range(arguments.rounds):
        for case, both in sides.items():
            for name, side in both.items():
                side.measure(turn)
                print(f"round {turn + 1}: {', '.join(map(str, case))}, {name}: {side.turns[-1]:.2f} s", file=sys.stderr)
    return page(sides, arguments)


def page(sides: dict[Case, dict[str, Side]], arguments: argparse.Namespace) -> list[str]:
    shown = (
        f"`python -m benchmarks training --rounds {arguments.rounds} --steps {arguments.steps} "
        f"--threads {arguments.threads}`"
    )
    packages = ("torch", "transformers", "sentence-transformers", "datasets", "accelerate")
    about = from_template("training", model=MODEL, arguments=arguments, counted=arguments.steps - 1)
    lines = [f"# A training step, beside {PEER}", "", f"Command: {shown}.", ""]
    lines += [machine(*packages), "", *about, ""]
    heads = ["pooling", "lengths", "precision", f"{OURS}, s", f"{PEER}, s", "ratio", "waiting", "padding here"]
    heads += ["there", "loss here", "there"]
    lines += [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for (pooling, lengths, precision), both in sides.items():
        own, peer = both[OURS], both[PEER]
        ratios = np.array(peer.turns) / np.array(own.turns)
        cells = [pooling, str(lengths), precision, f"{np.median(own.turns):.2f}", f"{np.median(peer.turns):.2f}"]
        cells += [f"{np.median(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f})"]
        shares = (float(np.median(own.waiting)), own.padding.share(), peer.padding.share())
        cells += [f"{100 * share:.1f} %" for share in shares]
        cells += [f"{side.loss:.5f}" for side in (own, peer)]
        lines.append(f"| {' | '.join(cells)} |")
    return lines
