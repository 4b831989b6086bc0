"""The page of the suite: one table a part, from results as they are kept."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from machine import machine
from suite_parts import OURS, Part, Row

Result = dict[str, Any]
PACKAGES = {
    "torch": "torch",
    "transformers": "transformers",
    "sentence_transformers": "sentence-transformers",
    "datasets": "datasets",
    "faiss": "faiss-cpu",
    "bm25s": "bm25s",
    "rank_bm25": "rank-bm25",
    "ir_measures": "ir_measures",
    "ranx": "ranx",
    "nltk": "nltk",
    "numpy": "numpy",
}
"""The packages of which the page says the version, by module."""
SAME = 1e-3
"""Values that differ by no more than this share are called the same."""


def render(parts: Mapping[str, Part], results: Mapping[str, Sequence[Result]]) -> list[str]:
    installed = [name for module, name in PACKAGES.items() if importlib.util.find_spec(module)]
    every = [result for of_part in results.values() for result in of_part]
    rounds = 1 + max(result["round"] for result in every)
    loads = [result["load"] for result in every]
    lines = [
        "# Everything, at three sizes, beside other libraries",
        "",
        f"Command: `python benchmarks/suite.py --folder build/suite --rounds {rounds}`.",
        "",
        machine(*installed),
        "",
        f"Seconds: the median of {rounds} {'round' if rounds == 1 else 'rounds'}. *Ratio*: how many times as long the",
        "other takes, the median of the ratios of each round, in which all took turns, and the least and greatest.",
        "Peak memory is that of a process which does this alone, with what it needs to be ready (libraries, model,",
        "inputs) and with the pages of mapped files. *Value* is a figure that both must share; where it differs by",
        f"more than a thousandth both are shown. The machine's load before a measurement was {min(loads):.1f} to",
        f"{max(loads):.1f}; {len(os.sched_getaffinity(0))} would be all cores in use by others.",
    ]
    for name, part in parts.items():
        if results[name]:
            lines += ["", *table(part, results[name])]
    return lines


def table(part: Part, results: Sequence[Result]) -> Iterator[str]:
    yield f"## {part.name.capitalize()}"
    yield ""
    yield part.about
    yield ""
    rate = f"{part.unit}/s" if part.unit else ""
    heads = [part.unit or "size", "", "seconds", rate, "peak MiB", "beside", "seconds", "ratio", "peak MiB", "value"]
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for size in part.sizes:
        for row in part.rows:
            sides = {side: of(results, size, row.name, side) for side in (OURS, *row.peers)}
            if sides[OURS]:
                yield from lines_of(size, row, sides)


def of(results: Sequence[Result], size: Any, row: str, side: str) -> dict[int, Result]:
    """The results of a side by round."""
    wanted = {"size": size, "row": row, "side": side}
    return {result["round"]: result for result in results if wanted.items() <= result.items()}


def lines_of(size: Any, row: Row, sides: Mapping[str, Mapping[int, Result]]) -> Iterator[str]:
    """A line a peer, or one where there is none."""
    ours = sides[OURS]
    seconds = median(result["seconds"] for result in ours.values())
    rate = f"{size / seconds:,.4g}" if isinstance(size, int) else ""
    own = [shown(size), row.name, f"{seconds:.4g}", rate, f"{median(each['peak'] for each in ours.values()):,.0f}"]
    found = {name: side for name, side in sides.items() if name != OURS and side}
    value = next(iter(ours.values())).get("value")
    if not found:
        yield f"| {' | '.join([*own, '', '', '', '', '' if value is None else f'{value:.4g}'])} |"
    for name, side in found.items():
        ratios = [side[number]["seconds"] / ours[number]["seconds"] for number in side.keys() & ours.keys()]
        spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else ""
        ratio = f"{median(ratios):.2f}{spread}" if ratios else ""
        other = [name, f"{median(each['seconds'] for each in side.values()):.4g}", ratio]
        other += [f"{median(each['peak'] for each in side.values()):,.0f}"]
        yield f"| {' | '.join([*own, *other, compared(value, next(iter(side.values())).get('value'))])} |"


def compared(ours: float | None, theirs: float | None) -> str:
    """Whether two sides have the same value; nothing where a side has none."""
    if ours is None or theirs is None:
        return ""
    if abs(ours - theirs) <= SAME * max(abs(ours), abs(theirs)):
        return "same"
    return f"{ours:.5g}, {theirs:.5g}"


def shown(size: Any) -> str:
    return f"{size:,}" if isinstance(size, int) else str(size)
