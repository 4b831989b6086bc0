"""Training steps of a retriever and a re-ranker, and teacher scoring, beside sentence-transformers.

The part `steps` of `gpu`. `--model` is an encoder of BERT-base's size; the part `base` writes one with random weights.
Texts are questions and passages of squad-passages with their natural lengths. Both sides compute in bf16 with PyTorch's
own attention, take turns in one process, and see the same batches in the same order. Needs `pip install datasets
accelerate`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import reranker_sides, retriever_sides
from benchmarks.clock import Clock, kernel_seconds
from benchmarks.command import command
from benchmarks.machine import machine
from benchmarks.page import from_template, write_as_measured
from benchmarks.retriever_sides import Lengths
from benchmarks.run_steps import step
from benchmarks.training_examples import prepare_examples, read_examples
from benchmarks.training_sides import OURS, PEER, Setting, Side
from stillhouse.core.context import Context
from stillhouse.models.cross_encoder import CrossEncoder
from stillhouse.models.pair_scores import score_pairs
from stillhouse.models.settings import InferenceConfig

LENGTH, PAIR_LENGTH = 144, 192
PADDED, UNPADDED = f"{OURS}, padding: kept", f"{OURS}, padding: none"
BATCH_TOKENS = (16_384, 65_536)


def main(argv: Sequence[str] | None = None) -> int:
    parser = command("gpu_steps", __doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--batch", type=int, default=64, help="queries of a retriever's step, each with 1 negative")
    parser.add_argument("--candidates", type=int, default=8, help="of a re-ranker's query; it has half as many queries")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6, help="steps of a turn; the first is not counted")
    parser.add_argument("--pairs", type=int, default=40_000, help="pairs that the teacher scores")
    arguments = parser.parse_args(argv)
    if not (arguments.data / "squad-passages").is_dir():
        print(f"skipped: {arguments.data / 'squad-passages'} is not here; give --data", file=sys.stderr)
        return 1
    write_as_measured(report, arguments)
    return 0


def report(folder: Path, arguments: argparse.Namespace) -> Iterator[str]:
    clock = Clock(Context(folder, quiet=True).torch_device())
    lengths = {"pooling": "cls", "query_length": 64, "passage_length": LENGTH}
    step("fetch-model", {}, {"encoder": folder / "model"}, model=str(arguments.model), **lengths)
    prepare_examples(folder, arguments.data / "squad-passages", arguments.candidates - 1)
    reranker_sides.start(folder / "model", PAIR_LENGTH, folder / "reranker")
    yield "# Training steps and teacher scoring"
    yield ""
    yield "Command: `python -m benchmarks gpu --folder build/gpu --only base steps`."
    yield ""
    yield machine("torch", "transformers", "sentence-transformers")
    yield ""
    sizes = {"batch": arguments.batch, "half": arguments.batch // 2, "candidates": arguments.candidates}
    counts = {"length": LENGTH, "pair": PAIR_LENGTH, "rounds": arguments.rounds, "steps": arguments.steps - 1}
    yield from from_template("gpu_steps", **sizes, **counts)
    yield ""
    yield "| step | side | ms | ratio | waiting for data | GPU idle | padding |"
    yield "|---|---|---|---|---|---|---|"
    for name, sides in trainings(folder, arguments, clock).items():
        yield from rows(name, sides, arguments, clock)
    yield ""
    yield "| teacher scoring | padded tokens a batch | pairs/s | GPU idle |"
    yield "|---|---|---|---|"
    for side, tokens, rate, idle in scoring(folder, arguments, clock):
        yield f"| {side} | {tokens} | {rate:,.0f} | {idle} |"


def trainings(folder: Path, arguments: argparse.Namespace, clock: Clock) -> dict[str, dict[str, Side]]:
    """The sides of both kinds of training step."""
    steps, count = arguments.steps, arguments.candidates - 1
    turns = arguments.rounds + 1  # the last is profiled
    natural = Lengths(LENGTH, False)
    retriever = Setting(folder / "model", "bf16", steps, clock, folder)
    reranker = Setting(folder / "reranker", "bf16", steps, clock, folder)
    pairs = read_examples(folder, arguments.batch, turns * steps, 1)
    groups = read_examples(folder, arguments.batch // 2, turns * steps, count)
    return {
        "retriever": {
            PADDED: retriever_sides.ours(retriever, pairs, natural, padding_setting="kept"),
            UNPADDED: retriever_sides.ours(retriever, pairs, natural, padding_setting="none"),
            PEER: retriever_sides.theirs(retriever, pairs, natural),
        },
        "re-ranker": {
            PADDED: reranker_sides.ours(reranker, groups, "kept"),
            UNPADDED: reranker_sides.ours(reranker, groups, "none"),
            PEER: reranker_sides.theirs(reranker, groups),
        },
    }


def rows(name: str, sides: dict[str, Side], arguments: argparse.Namespace, clock: Clock) -> Iterator[str]:
    for turn in range(arguments.rounds):
        for label, side in sides.items():
            side.measure(turn)
            print(f"{name}, {label}: {1000 * side.turns[-1]:.1f} ms", file=sys.stderr, flush=True)
    for label, side in sides.items():
        own = float(np.median(side.turns))
        ratio = float(np.median(np.array(sides[PEER].turns) / np.array(side.turns)))
        waiting = f"{float(np.median(side.waiting)):.1%}" if side.waiting else ""
        busy = kernel_seconds(lambda side=side: side.run(arguments.rounds), clock.device) / arguments.steps
        idle = f"{max(0.0, 1 - busy / own):.1%}" if busy else ""
        yield f"| {name} | {label} | {1000 * own:.1f} | {ratio:.2f} | {waiting} | {idle} | {side.padding.share():.1%} |"


def scoring(folder: Path, arguments: argparse.Namespace, clock: Clock) -> Iterator[tuple[str, str, float, str]]:
    """Pairs a second of both sides, from texts to scores on disk here and in memory there."""
    examples = read_examples(folder, 1, 1, 1)
    queries = np.array(examples.sampler().texts, dtype=object)
    passages = np.array(examples.texts(), dtype=object)
    rng = np.random.default_rng(0)
    query_P = rng.integers(0, len(queries), arguments.pairs)
    row_P = rng.integers(0, len(passages), arguments.pairs)
    model = CrossEncoder.load(folder / "reranker").to(clock.device).eval()

    def ours(tokens: int, count: int, name: str) -> Callable[[], Any]:
        work = folder / "scores" / name
        work.mkdir(parents=True, exist_ok=True)
        context = Context(work, quiet=True)
        config = InferenceConfig(batch_tokens=tokens, precision="bf16")
        return lambda: score_pairs(model, queries, passages, query_P[:count], row_P[:count], context, "", config)

    for tokens in BATCH_TOKENS:
        ours(tokens, min(2000, arguments.pairs), f"{tokens} first")()
        seconds = timed(ours(tokens, arguments.pairs, str(tokens)), clock)
        busy = kernel_seconds(ours(tokens, arguments.pairs, f"{tokens} profiled"), clock.device)
        idle = f"{max(0.0, 1 - busy / seconds):.1%}" if busy else ""
        yield OURS, f"{tokens:,}", arguments.pairs / seconds, idle
    from sentence_transformers import CrossEncoder as Peer

    peer = Peer(str(folder / "reranker"), max_length=PAIR_LENGTH, device=str(clock.device))
    given = [[queries[query], passages[row]] for query, row in zip(query_P, row_P)]

    def theirs(count: int) -> Callable[[], Any]:
        def run() -> None:
            with torch.autocast(clock.device.type, dtype=torch.bfloat16):
                peer.predict(given[:count], batch_size=128, show_progress_bar=False)

        return run

    theirs(min(2000, arguments.pairs))()
    yield f"{PEER}, batches of 128 pairs", "", arguments.pairs / timed(theirs(arguments.pairs), clock), ""


def timed(run: Callable[[], Any], clock: Clock) -> float:
    begun = clock()
    run()
    return clock() - begun
