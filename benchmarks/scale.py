"""The steps that need no model, on a synthetic corpus of any size: time, memory, disk, and whether memory is bounded.

    python -m benchmarks scale --folder build/scale [--passages 10000000] [--data ../shared/data]

Every task runs at a tenth of the size and at the full size, each in a process of its own. The growth of its own memory
per passage is compared with what docs/reference/limits.md promises. A stopped run continues with the first task without
result. Files are removed when no later task reads them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.command import command, run_alone
from benchmarks.own_process import measure
from benchmarks.page import write_page
from benchmarks.scale_page import render
from benchmarks.scale_tasks import TASKS, Place, wiki_intro
from stillhouse.core.artifacts import write_whole

KINDS = ("flat", "sq8", "ivfpq")
PASSAGES, WIDTH, SHARDS = 10_000_000, 64, 8
SMALLER = 10
RESULTS = "results.json"


def main(argv: Sequence[str] | None = None) -> int:
    parser = command("scale", __doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where corpora and results go")
    parser.add_argument("--passages", type=int, default=PASSAGES)
    parser.add_argument("--width", type=int, default=WIDTH, help="of the random vectors")
    parser.add_argument("--shards", type=int, default=SHARDS)
    parser.add_argument("--memory-mib", type=int, default=1024, help="what counting may hold")
    parser.add_argument("--note", default="", help="a sentence for the page on what the figures were made beside")
    parser.add_argument("--task", nargs=2, metavar=("TASK", "WHICH"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.task:
        task, which = arguments.task
        print(json.dumps(measure(lambda: TASKS[task](place(arguments, arguments.passages), which))))
        return 0
    for size in (arguments.passages // SMALLER, arguments.passages):
        run_size(arguments, size)
    write_page(arguments.page, render(read_results(arguments.folder), settings(arguments)))
    return 0


def place(arguments: argparse.Namespace, size: int) -> Place:
    folder = arguments.folder / f"{size}"
    return Place(folder, size, arguments.width, arguments.shards, arguments.data, arguments.memory_mib)


def settings(arguments: argparse.Namespace) -> dict[str, Any]:
    names = ("passages", "width", "shards", "memory_mib", "note")
    return {name: getattr(arguments, name) for name in names} | {"smaller": arguments.passages // SMALLER}


def plan(corpus: Place) -> Iterator[tuple[str, str, list[Path]]]:
    """Every task, which one of its kind, and what can be removed after it."""
    yield "source", "", []
    yield "ingest JSONL", "", [corpus.source]
    yield "ingest Parquet", "", []
    yield "validate", "", [corpus.folder / "validation"]
    yield "look up ids", "", []
    for number in range(1, corpus.shards + 1):
        yield "shard", str(number), []
    for kind in KINDS:
        yield "index", kind, []
        yield "search", kind, [] if kind == "flat" else [corpus.index(kind)]
    if wiki_intro(corpus.data).is_file():
        yield "tokens", "", [corpus.corpus, corpus.folder / "vectors", corpus.index("flat")]
        yield "count n-grams", "", [corpus.folder / "tokens"]
    else:
        print(f"no counting: {wiki_intro(corpus.data)} is not here; give its folder with --data", file=sys.stderr)


def run_size(arguments: argparse.Namespace, size: int) -> None:
    corpus = place(arguments, size)
    corpus.folder.mkdir(parents=True, exist_ok=True)
    for task, which, done_with in plan(corpus):
        results = read_results(arguments.folder)
        name = f"{task} {which}".strip()
        if not any((row["task"], row["passages"]) == (name, size) for row in results):
            own = {"STILLHOUSE_QUIET": "1", "STILLHOUSE_WORK": str(corpus.folder / "work")}
            found = run_alone("scale", words(arguments, size, task, which), **own)
            print(f"{size:,} {name}: {found}", file=sys.stderr, flush=True)
            rows = [*results, {"task": name, "passages": size, **found}]
            write_whole(arguments.folder / RESULTS, json.dumps(rows, indent=1) + "\n")
        for path in done_with:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    shutil.rmtree(corpus.folder)


def words(arguments: argparse.Namespace, size: int, task: str, which: str) -> list[str]:
    given = {"passages": size, **{name: getattr(arguments, name) for name in ("folder", "data", "width", "shards")}}
    flags = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    return [*flags, "--memory-mib", str(arguments.memory_mib), "--task", task, which]


def read_results(folder: Path) -> list[dict[str, Any]]:
    path = folder / RESULTS
    rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    return rows
