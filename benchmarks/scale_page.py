"""The page of `scale.py`: what was measured, and whether memory was bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.machine import machine
from benchmarks.page import from_template

PACKAGES = ("numpy", "pandas", "pyarrow", "faiss-cpu", "torch")
BASE = 300
"""Bytes of its own memory that a step may take a passage, whatever is in the passage: digests, numbers, identifiers."""
SHOWN = {
    "source": "*sampling the source*",
    "ingest JSONL": "`ingest` from JSONL",
    "ingest Parquet": "`ingest` from Parquet",
    "validate": "`validate`",
    "look up ids": "rows of 1,000 passage ids",
    "shard": "`encode` of a shard, random vectors",
    "tokens": "*sampling the tokens*",
    "count n-grams": "counts of n-grams, n ≤ 4",
}

Row = dict[str, Any]


def render(results: Sequence[Row], settings: Row) -> list[str]:
    rows = together(results)
    flags = " ".join(f"--{name} {settings[name]}" for name in ("passages", "shards", "width"))
    shown = f"python -m benchmarks scale --folder build/scale {flags}"
    note = f" {settings['note']}" if settings["note"] else ""
    return [
        f"# {settings['passages']:,} passages without a model",
        "",
        f"Command: `{shown}`.",
        "",
        f"{machine(*PACKAGES)}{note}",
        "",
        *from_template("scale", width=settings["width"], shards=settings["shards"]),
        "",
        "| task | passages | seconds | core s | passages/core s | peak MiB | own MiB | written MiB | kept MiB | load |",
        "|---|---|---|---|---|---|---|---|---|---|",
        *map(measured_line, rows),
        "",
        *checked(rows, settings),
        "",
        "Each task checks its output against its input: the number of accepted, rejected and repeated passages, the",
        "table read back from its own output, the ranking of 20 queries by a plain product with all vectors, and the",
        "sum of all counts of each length. recall@10 compared with exact search: " + recalls(rows) + ".",
    ]


def together(results: Sequence[Row]) -> list[Row]:
    """The results with the shards of a size as one: seconds and bytes add up, of memory the most counts."""
    rows: dict[tuple[str, int], Row] = {}
    for row in results:
        name = "shard" if row["task"].startswith("shard") else row["task"]
        known = rows.setdefault((name, row["passages"]), {**row, "task": name, "parts": 0})
        known["parts"] += 1
        if known["parts"] > 1:
            for figure in ("seconds", "processor", "written", "kept"):
                known[figure] += row[figure]
            for figure in ("peak", "own"):
                known[figure] = max(known[figure], row[figure])
    return list(rows.values())


def measured_line(row: Row) -> str:
    name = SHOWN.get(row["task"]) or row["task"].replace("index ", "index of shards: ").replace("search ", "search: ")
    rate = "" if row["task"].startswith("search") else f"{row['passages'] / row['processor']:,.0f}"
    figures = [f"{row['seconds']:.1f}", f"{row['processor']:.1f}", rate]
    figures += [f"{row[key]:,.0f}" if key in row else "" for key in ("peak", "own", "written", "kept")]
    return f"| {' | '.join([name, format(row['passages'], ','), *figures, format(row['load'], '.1f')])} |"


def allowed(task: str, settings: Row) -> float:
    """The bytes a passage by which a task's own memory may grow."""
    # Faiss holds these whole; a vector of ivfpq has a byte for four dimensions, and its number.
    whole = {"sq8": settings["width"], "ivfpq": settings["width"] / 4 + 8}
    return BASE + whole.get(task.split()[-1], 0.0)


def checked(rows: Sequence[Row], settings: Row) -> Iterator[str]:
    """Own memory at both sizes, its growth a passage, and whether that is within bounds."""
    yield "| task | own MiB, smaller | larger | growth, bytes a passage | at most | |"
    yield "|---|---|---|---|---|---|"
    smaller, larger = settings["smaller"], settings["passages"]
    by_size = {(row["task"], row["passages"]): row["own"] for row in rows}
    for task in dict.fromkeys(row["task"] for row in rows):
        if task in ("source", "tokens") or not {(task, smaller), (task, larger)} <= by_size.keys():
            continue
        few, many = by_size[task, smaller], by_size[task, larger]
        growth, most = (many - few) * 2**20 / (larger - smaller), allowed(task, settings)
        if task == "count n-grams":  # it fills what it may hold
            most += 2**20 * settings["memory_mib"] / (larger - smaller)
        verdict = "bounded" if growth <= most else "**more than promised**"
        yield f"| {SHOWN.get(task, task)} | {few:,.0f} | {many:,.0f} | {growth:.0f} | {most:.0f} | {verdict} |"


def recalls(rows: Sequence[Row]) -> str:
    found = [f"{row['task'].split()[-1]} {row['recall']:.3f} ({row['passages']:,})" for row in rows if "recall" in row]
    return ", ".join(text for text in found if not text.startswith("flat"))
