"""One source of `forecasts.py`: what `stillhouse new` says of it, and the time that each stage of the run takes."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machine import machine

from stillhouse.artifacts import read_manifest
from stillhouse.corpus.first_look import look_at
from stillhouse.workflow.recipe_choice import LABELLED, UNLABELLED
from stillhouse.workflow.recipes import load_recipe
from stillhouse.workflow.run_forecast import forecast
from stillhouse.workflow.start_model import counted

STAGE = re.compile(r"step \d+ of \d+: (\S+) \(")
FIRST = re.compile(r"\d+ of \d+ steps to do: (.*?):?$")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Case:
    """A source, what `new` is given beside it, and the last stage to run: empty for all, None for `new` alone."""

    name: str
    source: str
    hours: str = ""
    until: str | None = ""


def measure(case: Case, folder: Path) -> dict[str, Any]:
    """What `new` and `run` said and took; the run of a source that `new` warns of stops by itself."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    workspace = folder / "workspace"
    flags = ["--hours", case.hours] if case.hours else []
    wall, processor, code, said = new(workspace, case.source, flags, folder)
    found: dict[str, Any] = {"flags": flags, "new": [wall, processor], "code": code, "said": said}
    found["machine"] = machine("torch", "transformers")
    if code:
        return found
    found |= chosen(workspace) | predicted(case.source, workspace)
    found["forecast"] = found["now"]
    if case.until is not None:
        found |= run(workspace, case.until, folder)
    return found


def new(workspace: Path, source: str, flags: Sequence[str], work: Path) -> tuple[float, float, int, list[str]]:
    """Seconds, processor seconds, exit code and lines of `stillhouse new`."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    words = [sys.executable, "-m", "stillhouse.cli", "new", str(workspace), "--source", source, *flags]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(work))
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    lines = [line.replace(str(workspace), "work") for line in done.stdout.splitlines()]
    return round(wall, 1), round(processor, 1), done.returncode, [line.replace(source, "SOURCE") for line in lines]


def said_again(source: str, flags: Sequence[str], folder: Path) -> dict[str, Any]:
    """What `new` says and takes with the present code, for a workspace that is then thrown away."""
    shutil.rmtree(folder / "again", ignore_errors=True)
    wall, processor, code, said = new(folder / "again", source, flags, folder)
    shutil.rmtree(folder / "again", ignore_errors=True)
    return {"new": [wall, processor], "code": code, "said": said}


def chosen(workspace: Path) -> dict[str, Any]:
    """The recipe and the settings that `new` wrote."""
    recipe = load_recipe(workspace / "params.yaml")
    return {
        "recipe": LABELLED if recipe["stages"].get("teacher") != "none" else UNLABELLED,
        "passage_length": recipe["fetch_model"]["passage_length"],
        "max_steps": {name: own["max_steps"] for name, own in recipe.items() if "max_steps" in own},
    }


def predicted(source: str, workspace: Path) -> dict[str, Any]:
    """The seconds of every stage that this code forecasts for a workspace, and the numbers that it saw."""
    recipe = load_recipe(workspace / "params.yaml")
    look = counted(look_at(source), recipe["fetch_model"]["model"])
    found = forecast(recipe, look)
    seconds = {name: round(value, 1) for name, value in found.seconds.items()} if found else {}
    return {"now": seconds, "passages": look.passages, "whole": look.whole, "questions": dict(look.questions)}


def run(workspace: Path, until: str, work: Path) -> dict[str, Any]:
    """Seconds and processor seconds of every stage of `stillhouse run`, its first estimate and its exit code.

    The processor's time of a process is read where the process says that a stage begins.
    """
    words = [sys.executable, "-m", "stillhouse.cli", "run", *(["--until", until] if until else [])]
    begun: list[tuple[str, float, float]] = []
    first, last, started = "", "", time.monotonic()
    with subprocess.Popen(
        words, cwd=workspace, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(work)
    ) as process:
        for line in lines_of(process):
            last = line if line.startswith("stillhouse:") else last
            if of_run := FIRST.match(line):
                first = of_run[1]
            if of_stage := STAGE.match(line):
                begun.append((of_stage[1], time.monotonic() - started, processor_of(process.pid)))
                print(f"  {line}", flush=True)
        before_end = resource.getrusage(resource.RUSAGE_CHILDREN)
        code = process.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before_end.ru_utime - before_end.ru_stime
    if begun:
        name, _, _ = begun[0]
        begun[0] = (name, 0.0, 0.0)  # with the start of the program
    ends = [*((wall, spent) for _, wall, spent in begun[1:]), (time.monotonic() - started, processor)]
    stages = {
        name: [round(end[0] - wall, 1), round(end[1] - spent, 1)] for (name, wall, spent), end in zip(begun, ends)
    }
    corpus = workspace / "artifacts/ingest/corpus"
    queries = read_manifest(corpus, verify=False).facts["queries"] if corpus.is_dir() else {}
    return {
        "stages": stages,
        "until": until,
        "first_estimate": first,
        "run_code": code,
        "run_said": last,
        "queries": queries,
    }


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    """The lines of a process, with bars that overwrite themselves as lines of their own."""
    assert process.stdout is not None
    for line in process.stdout:
        yield from line.rstrip("\n").split("\r")


def processor_of(pid: int) -> float:
    """Processor seconds of a running process and of those of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / TICKS


def environment(work: Path) -> Mapping[str, str]:
    """Of a process that knows no earlier times."""
    return {**os.environ, "STILLHOUSE_WORK": str(work / "work")}
