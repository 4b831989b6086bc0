"""The page of `scale.py`: what was measured, whether memory was bounded, and what follows for other sizes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from machine import machine
from scale_on_paper import ON_PAPER, WITH_A_MODEL, measured_rates, on_paper

HERE = Path(__file__).resolve().parent
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


def render(results: Sequence[Row], settings: Row, measured: Path) -> list[str]:
    """The page; `measured` is the file that the rates of its table on paper are kept in."""
    rows = together(results)
    kept = {name: rate for name, rate in read_rates(measured).items() if name in WITH_A_MODEL}
    paper = paper_lines(measured_rates(rows, settings) | kept, measured)
    flags = " ".join(f"--{name} {settings[name]}" for name in ("passages", "shards", "width"))
    command = f"python benchmarks/scale.py run --folder build/scale {flags}"
    note = f" {settings['note']}" if settings["note"] else ""
    return [
        f"# {settings['passages']:,} passages without a model, and more on paper",
        "",
        f"Commands: `{command}`, then the same with `page` instead of `run`.",
        "",
        f"{machine(*PACKAGES)}{note}",
        "",
        "Passages have 56 random words on average, with repeats that `ingest` and `validate` must count correctly.",
        f"Vectors of width {settings['width']} lie in clusters, in {settings['shards']} shards. Tokens come from a",
        "trigram model of `wiki-intro`, at most 46 a passage. Every line is a process of its own (for shards, the sum",
        "of their times and the highest memory). *Peak* includes the pages of mapped files, which the system reclaims",
        "when it needs them. *Own* is memory that only the process can free, sampled 20 times a second. *Written* is",
        "everything written to disk, *kept* is the result. *Core s* is processor time; other work lengthens it less",
        "than wall time.",
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
        "",
        *paper,
    ]


def paper_lines(rates: Mapping[str, Any], measured: Path) -> list[str]:
    """The section on paper by these rates, which `measured` then has."""
    unfinished = measured.with_name(f".{measured.name}")
    unfinished.write_text(json.dumps(rates, indent=1) + "\n", encoding="utf-8")
    unfinished.rename(measured)
    assumed = yaml.safe_load((HERE / "scale.assumed.yaml").read_text(encoding="utf-8"))
    return list(on_paper(rates, assumed))


def read_rates(measured: Path) -> dict[str, Any]:
    rates: dict[str, Any] = json.loads(measured.read_text(encoding="utf-8")) if measured.is_file() else {}
    return rates


def on_paper_anew(page: str, rates: Mapping[str, Any], measured: Path) -> list[str]:
    """The lines of a page, without its notes, whose section on paper has these rates too."""
    before = page[: page.index(f"{ON_PAPER}\n")].splitlines()
    return [*before, *paper_lines(read_rates(measured) | rates, measured)]


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
