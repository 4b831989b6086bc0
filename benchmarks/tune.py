"""Does `stillhouse tune` find better settings than the default's in half an hour of one core? Writes tune.md.

    OMP_NUM_THREADS=1 python benchmarks/tune.py --folder build/tune [--data ../shared/data]

It uses the cell medquad-300-1 of quality.py: 300 train questions of MedQuAD, 150 dev questions, passages of 128 tokens.
The run up to retriever 1 comes first, as with `dvc repro`. The search then has --minutes of processor time. Default and
winner are compared on the dev questions, which chose the winner, and once on the test questions, which no trial
reads.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine
from notes import write_page
from quality_cells import CELLS, SIZE, prepare
from quality_run import fit, set_work, stillhouse
from run_steps import step_once

from stillhouse.artifacts import write_whole
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.figures import measure_runs
from stillhouse.evaluation.measures import parse_measures
from stillhouse.evaluation.significance import compare
from stillhouse.tuning.study import FIGURE, NUMBER, SECONDS, SETTINGS, open_study
from stillhouse.tuning.trial import Place

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "tune.measured.json"
CELL = "medquad-300-1"
LENGTH = 128
RETRIEVER = "retriever_1"
DEFAULT = "default"
SAMPLES = {"bootstrap_samples": 10_000, "randomisation_samples": 10_000, "seed": 42}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where sources and artifacts go")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder that holds the data sets")
    parser.add_argument("--minutes", type=float, default=30.0, help="of the processor, for the search")
    arguments = parser.parse_args()
    if not (arguments.data / "medquad").is_dir():
        print(f"skipped: {arguments.data / 'medquad'} is not here; name its parent with --data")
        return 0
    folder = arguments.folder.resolve()
    workspace = folder / "workspace"
    cell = next(cell for cell in CELLS if cell.name == CELL)
    prepare(cell, SIZE, arguments.data.resolve(), folder)
    set_work(folder)
    if not (workspace / "params.yaml").is_file():
        stillhouse("new", str(workspace), "--source", str(folder / "source"))
        fit(workspace / "params.yaml", cell, LENGTH)
    stillhouse("run", "--until", f"{RETRIEVER}_index", cwd=workspace)
    said = searched(workspace, arguments.minutes)
    found = measured(workspace, folder) | {"said": said, "minutes": arguments.minutes}
    write_whole(MEASURED, json.dumps(found, sort_keys=True, indent=1) + "\n")
    write_page(HERE / "tune.md", page_lines(found))
    return 0


def searched(workspace: Path, minutes: float) -> list[str]:
    """Runs the command, whose trials show as it goes, and returns what it says at its end."""
    words = [sys.executable, "-m", "stillhouse.cli", "tune", "--minutes", str(minutes)]
    variables = {name: value for name, value in os.environ.items() if name != "STILLHOUSE_QUIET"}
    done = subprocess.run(words, cwd=workspace, check=True, stdout=subprocess.PIPE, text=True, env=variables)
    print(done.stdout)
    return done.stdout.splitlines()


def measured(workspace: Path, folder: Path) -> dict[str, Any]:
    """The trials, and default and winner on the test questions."""
    place = Place(workspace / "tune", workspace / "artifacts")
    study = open_study(place.folder, 42)
    trials = [
        {
            "number": trial.user_attrs[NUMBER],
            "settings": trial.user_attrs[SETTINGS],
            "seconds": trial.user_attrs.get(SECONDS, 0.0),
            "dev": trial.value,
            "finished": FIGURE in trial.user_attrs,
        }
        for trial in study.trials
        if trial.state.name in ("COMPLETE", "PRUNED")
    ]
    stopped = [trial for trial in study.trials if trial.state.name in ("FAIL", "WAITING")]
    best = max((trial for trial in trials if trial["finished"]), key=lambda trial: (trial["dev"], -trial["number"]))
    own = place.trial(best["settings"]) / "artifacts" if best["settings"] else place.workspace
    corpus = {"corpus": place.workspace / "ingest" / "corpus"}
    runs = {}
    for name, root in ((DEFAULT, place.workspace), ("found", own)):
        model = {"retriever": root / RETRIEVER / "retriever", "index": root / f"{RETRIEVER}_index" / "index"}
        runs[name] = folder / "runs" / name
        step_once("retrieve", corpus | model, {"run": runs[name]})
    return {
        "trials": trials,
        "stopped_seconds": sum(trial.user_attrs.get(SECONDS, 0.0) for trial in stopped),
        "best": best,
        "dev": compared(corpus["corpus"], runs, "dev"),
        "test": compared(corpus["corpus"], runs, "test"),
        "machine": machine("torch", "transformers", "optuna"),
    }


def compared(corpus: Path, runs: Mapping[str, Path], split: str) -> dict[str, Any]:
    """RR@10 of both systems, and the paired difference."""
    of = next(
        part for part in measure_runs(Corpus.open(corpus), runs, split, parse_measures("RR@10")) if not part.synthetic
    )
    values = {name: np.array(of.values[name]["RR@10"]) for name in runs}
    (difference,) = compare((values["found"] - values[DEFAULT])[:, None], **SAMPLES)
    means = {name: float(array.mean()) for name, array in values.items()}
    return means | {"queries": of.queries} | vars(difference)


def wrapped(lines: Iterable[str]) -> list[str]:
    """Output of a command in lines of at most 100 characters."""
    return [part for line in lines for part in textwrap.wrap(line, 100, subsequent_indent="  ") or [""]]


def page_lines(found: Mapping[str, Any]) -> list[str]:
    trials, best = found["trials"], found["best"]
    spent = sum(trial["seconds"] for trial in trials) + found["stopped_seconds"]
    lines = ["# Is there something better than the default?", ""]
    lines += ["`OMP_NUM_THREADS=1 python benchmarks/tune.py --folder build/tune`", ""]
    lines += [f"MedQuAD, 300 train questions, seed 1: `stillhouse tune` as shipped, with {found['minutes']:g}"]
    lines += ["minutes of one core. The run up to retriever 1, which is the default's trial, came first and is not"]
    lines += [f"counted. The search took {spent:.0f} seconds of processor time, including the default's measurement."]
    lines += ["The machine had other work meanwhile, so all seconds are processor time.", ""]
    lines += ["| RR@10 | questions | default | found | difference | interval | p |", "|---|---|---|---|---|---|---|"]
    for split, label in (("dev", "dev, used to choose it"), ("test", "test, measured once")):
        row = found[split]
        means = f"{row[DEFAULT]:.4f} | {row['found']:.4f} | {row['difference']:+.4f}"
        interval = f"{row['low']:+.4f} to {row['high']:+.4f}"
        lines.append(f"| {label} | {row['queries']} | {means} | {interval} | {row['randomisation_p']:.4f} |")
    lines += ["", "p comes from a two-sided paired randomisation test. On dev it ignores that the best was chosen. The"]
    lines += ["command's own p accounts for this and is one-sided: how often the best of the same number of settings"]
    lines += ["would lead by as much if none were better. The command's RR@10 skips passages that are neither right"]
    lines += ["nor wrong, as training does; `evaluate` counts them. Its last lines, wrapped:"]
    lines += ["", "```", *wrapped(found["said"]), "```", "", "## Trials", ""]
    names = list(dict.fromkeys(key for trial in trials for key in trial["settings"]))
    lines += [f"| trial | {' | '.join(names)} | dev RR@10 | seconds |", "|---|" + "---|" * (len(names) + 2)]
    for trial in trials:
        values = [str(trial["settings"].get(name, "")) for name in names]
        dev = f"{trial['dev']:.4f}" if trial["finished"] else "given up early"
        number = f"**{trial['number']}**" if trial["number"] == best["number"] else trial["number"]
        lines.append(f"| {number} | {' | '.join(values)} | {dev} | {trial['seconds']:.0f} |")
    lines += ["", "Trial 0 is the default. An empty cell has the default's value."]
    return [*lines, "", found["machine"]]


if __name__ == "__main__":
    sys.exit(main())
