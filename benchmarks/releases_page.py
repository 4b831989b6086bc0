"""The page of `releases.py`: each corpus's lines of releases, searching the oldest index and their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.page import from_template
from benchmarks.quality_cells import BEIR
from stillhouse.evaluation.samples import Samples
from stillhouse.evaluation.significance import compare

MEASURE = "nDCG@10"
FIRST = "1 first"
Found = Mapping[str, Mapping[str, Any]]


def page_lines(found: Found) -> list[str]:
    first = next(iter(found.values()))["about"]
    lines = ["# New queries, old index", ""]
    command = f"python -m benchmarks releases --folder build/releases --releases {first['releases']}"
    lines += [f"Command: `{command}`. {first['machine']}", ""]
    lines += from_template("releases", **first, measure=MEASURE)
    for corpus, title in BEIR.items():
        if corpus in found and FIRST in found[corpus]["releases"]:
            lines += ["", *part(title, found[corpus])]
    return lines


def part(title: str, of_corpus: Mapping[str, Any]) -> list[str]:
    """A corpus."""
    releases = of_corpus["releases"]
    lines = [f"## {title}", ""]
    lines += ["| release | labels | line | old | new | old ÷ new | training, s | encoding, s |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    order = ("first", "query_only", "fine_tune")
    for key in sorted(releases, key=lambda key: (int(key.split()[0]), order.index(key.split()[1]))):
        number, line = key.split()
        own = releases[key]
        old, new = np.mean(own["old"]), np.mean(own["new"]) if "new" in own else None
        cells = [number, str(own["labels"]), f"`{line}`" if line != "first" else "release 1", f"{100 * old:.1f}"]
        cells += [f"{100 * new:.1f}", f"{old / new:.1%}"] if new else ["the same", "–"]
        cells += [f"{own['seconds']:.0f}", f"{own['encoding_seconds']:.0f}" if "encoding_seconds" in own else "–"]
        lines.append(f"| {' | '.join(cells)} |")
    last = max(int(key.split()[0]) for key in releases)
    if last > 1:
        lines += ["", f"Release {last}:", "", "| compared | difference | interval | p |", "|---|---|---|---|"]
        lines += compared(releases, last)
    return lines


def compared(releases: Mapping[str, Any], number: int) -> list[str]:
    """The lines of a release against release 1."""
    baseline, lines = np.array(releases[FIRST]["new"]), []
    for line, index in (("query_only", "old"), ("fine_tune", "new")):
        if own := releases.get(f"{number} {line}"):
            [apart] = compare((np.array(own[index]) - baseline)[:, None], Samples(10_000))
            lines.append(
                f"| {line}, {index} − release 1 | {100 * apart.difference:+.1f} "
                f"| {100 * apart.low:+.1f} to {100 * apart.high:+.1f} | {apart.randomisation_p:.4f} |"
            )
    return lines
