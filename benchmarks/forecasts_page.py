"""The page of `forecasts.py`: each source's forecast beside the time that its run took, in total and by stage."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

Found = Mapping[str, Mapping[str, Any]]
LONG = 20.0
"""Stages that were to take, or took, as many seconds have a row of their own."""

SKIPPED = 1.0
"""A long stage that took less had nothing to do: a teacher no better than its student, or a known model."""


def page_lines(found: Found) -> list[str]:
    lines = ["# Is the forecast of `new` the time that the run takes?", ""]
    lines += ["Command: `OMP_NUM_THREADS=1 taskset -c 1 python benchmarks/forecasts.py --folder build/forecasts`, with"]
    lines += [f"the flags of each row. {next(iter(found.values()))['machine']}", "", ABOUT, ""]
    lines += [
        "| source | passages | questions | `new`, s | recipe, tokens | forecast, s | taken, s | ratio | clock, s |"
    ]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    lines += [row(name, of) for name, of in found.items()]
    lines += ["", "## Stages", "", f"Stages that were to take {LONG:g} s, or took as long.", ""]
    lines += ["| source | stage | forecast, s | taken, s | ratio |", "|---|---|---|---|---|"]
    for name, of in found.items():
        lines += [f"| {name} | `{stage}` | {cells(seconds)} |" for stage, seconds in long_stages(of).items()]
    lines += ["", "## What `new` says", ""]
    for name, of in found.items():
        lines += [f"{name}:", "", "```", *wrapped(of["said"]), "```", ""]
    return lines[:-1]


ABOUT = (
    "`stillhouse new` and then `stillhouse run`, as a user would, in an empty work folder: no stage had run on the "
    "machine before. Other programs used the same core, so *taken* is processor time on one thread, which a run on a "
    "free core takes by the clock; *clock* is what this run took beside the others. *Ratio* is the forecast divided by "
    "the time taken. Forecasts are those of the present code for the workspaces that were run. Where a run was ended "
    "after a stage (`--until`), the forecast is of the stages up to it. Where `new` refuses a source, or says that the "
    "run would stop, there is no forecast. Questions are train / dev / test: those of the corpus that `ingest` made, "
    "or of the source if it did not run."
)


def row(name: str, of: Mapping[str, Any]) -> str:
    seen = f"{of['passages']:,}" if "passages" in of else "–"
    queries = of.get("queries") or of.get("questions") or {}
    questions = " / ".join(f"{queries.get(split, 0):,}" for split in ("train", "dev", "test")) if queries else "–"
    chosen = f"`{of['recipe']}`, {of['passage_length']}" if "recipe" in of else "refused"
    stages, flags = of.get("stages", {}), list(of["flags"])
    if of.get("until"):
        flags += ["--until", of["until"]]
    label = f"{name} `{' '.join(flags)}`" if flags else name
    if of.get("run_code"):
        time = "– | the run stops, as `new` says | – | –"
    elif stages:
        wall, taken = (sum(seconds[part] for seconds in stages.values()) for part in (0, 1))
        time = f"{cells((sum(of['now'][stage] for stage in stages), taken))} | {wall:,.0f}"
    elif "now" in of:
        time = f"{sum(of['now'].values()):,.0f} | not run | – | –"
    else:
        time = "– | – | – | –"
    return f"| {label} | {seen} | {questions} | {of['new'][1]:.1f} | {chosen} | {time} |"


def long_stages(of: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Forecast and processor seconds of the stages that are not short."""
    if of.get("run_code"):
        return {}
    both = {stage: (of["now"][stage], taken) for stage, (_, taken) in of.get("stages", {}).items()}
    return {stage: seconds for stage, seconds in both.items() if max(seconds) >= LONG}


def cells(seconds: tuple[float, float]) -> str:
    expected, taken = seconds
    ratio = f"{expected / taken:.2f}" if taken >= SKIPPED else "skipped"
    return f"{expected:,.0f} | {taken:,.0f} | {ratio}"


def wrapped(lines: Sequence[str]) -> list[str]:
    """Output of a command in lines of at most 100 characters."""
    return [part for line in lines for part in textwrap.wrap(line, 100, subsequent_indent="  ") or [""]]
