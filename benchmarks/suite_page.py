"""The page of the suite: one table for each part, from the kept results."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from machine import machine
from suite_parts import OURS, Part, Row

Result = dict[str, Any]
Values = float | list[float]
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


def render(parts: Mapping[str, Part], results: Mapping[str, Sequence[Result]]) -> list[str]:
    installed = [name for module, name in PACKAGES.items() if importlib.util.find_spec(module)]
    every = [result for of_part in results.values() for result in of_part]
    of_parts = {1 + max(result["round"] for result in of_part) for of_part in results.values() if of_part}
    rounds = " or ".join(map(str, sorted(of_parts)))  # parts may be measured apart
    loads = [result["load"] for result in every]
    cores = len(os.sched_getaffinity(0))
    threads = " or ".join(map(str, sorted({result["threads"] for result in every})))
    lines = [
        "# Everything, at three sizes, beside other libraries",
        "",
        f"Command: `python benchmarks/suite.py --folder build/suite --rounds {max(of_parts)}`.",
        "",
        machine(*installed),
        "",
        f"Threads of PyTorch, faiss, NumPy and numba in each process: {threads}. Seconds are the median of {rounds}",
        f"{'round' if of_parts == {1} else 'rounds, with the lowest and highest'}. *Ratio* says how many times as long",
        "the other takes: the median of the ratios of each round, in which all take turns, with the lowest and",
        "highest. Peak memory is that of a process which does only this, including its libraries, model, inputs and",
        "the pages of mapped files. *Waiting* is the share of our time spent waiting for data (reading texts, drawing",
        "examples, tokens, tensors); the target is below 2 %. *Value* is a figure that both sides must share. If it",
        "differs by more than a thousandth (in `evaluation`, a millionth), the table shows both. The machine's load",
        f"before a measurement was {min(loads):.1f} to {max(loads):.1f}; {cores} would mean that others use all cores.",
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
    waits = any("waiting" in result for result in results)
    heads = [part.unit or "size", "", "seconds", rate, "peak MiB", *(["waiting"] if waits else [])]
    heads += ["beside", "seconds", "ratio", "peak MiB", "value"]
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for size in part.sizes:
        for row in part.rows:
            sides = {side: of(results, size, row.name, side) for side in (OURS, *row.peers)}
            if sides[OURS]:
                yield from lines_of(size, row, sides, waits)


def of(results: Sequence[Result], size: Any, row: str, side: str) -> dict[int, Result]:
    """The results of a side by round."""
    wanted = {"size": size, "row": row, "side": side}
    return {result["round"]: result for result in results if wanted.items() <= result.items()}


def lines_of(size: Any, row: Row, sides: Mapping[str, Mapping[int, Result]], waits: bool) -> Iterator[str]:
    """A line a peer, or one where there is none."""
    ours = sides[OURS]
    seconds = median(result["seconds"] for result in ours.values())
    rate = f"{size / seconds:,.4g}" if isinstance(size, int) else ""
    own = [shown(size), row.name, taken(ours), rate, f"{median(each['peak'] for each in ours.values()):,.0f}"]
    if waits:
        shares = [each["waiting"] for each in ours.values() if "waiting" in each]
        own.append(f"{100 * median(shares):.2f} %" if shares else "")
    found = {name: side for name, side in sides.items() if name != OURS and side}
    value = next(iter(ours.values())).get("value")
    if not found:
        yield f"| {' | '.join([*own, '', '', '', '', '' if value is None else f'{listed(value)[0]:.4g}'])} |"
    for name, side in found.items():
        ratios = [side[number]["seconds"] / ours[number]["seconds"] for number in side.keys() & ours.keys()]
        ratio = f"{median(ratios):.2f}{spread(ratios, '.2f')}" if ratios else ""
        other = [name, taken(side), ratio, f"{median(each['peak'] for each in side.values()):,.0f}"]
        said = compared(value, next(iter(side.values())).get("value"), row.same)
        yield f"| {' | '.join([*own, *other, said])} |"


def taken(side: Mapping[int, Result]) -> str:
    """The median of a side's seconds, and how far they lie apart."""
    seconds = [result["seconds"] for result in side.values()]
    return f"{median(seconds):.4g}{spread(seconds, '.4g')}"


def spread(values: Sequence[float], form: str) -> str:
    return f" ({min(values):{form}} to {max(values):{form}})" if len(values) > 1 else ""


def compared(ours: Values | None, theirs: Values | None, same: float) -> str:
    """Whether two sides have the same values; nothing where a side has none. Else those that differ, of both."""
    if ours is None or theirs is None:
        return ""
    pairs = list(zip(listed(ours), listed(theirs), strict=True))
    differ = [(one, other) for one, other in pairs if abs(one - other) > same * max(abs(one), abs(other))]
    return "; ".join(f"{one:.5g}, {other:.5g}" for one, other in differ) or "same"


def listed(values: Values) -> Sequence[float]:
    return values if isinstance(values, list) else [values]


def shown(size: Any) -> str:
    return f"{size:,}" if isinstance(size, int) else str(size)
