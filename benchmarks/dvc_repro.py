"""How long `dvc repro` takes if every stage imports PyTorch and transformers, and if one process does it for all.

    python benchmarks/dvc_repro.py --folder build/dvc_repro [--recipes micro labelled]

Each run is in a new folder and reads the built-in sample. Writes dvc_repro.md beside this.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from machine import machine
from notes import write_page

from stillhouse.artifacts import digest_files
from stillhouse.cli.preloaded import PRELOAD
from stillhouse.context import QUIET, WORK_ROOT
from stillhouse.workflow.graph import graph_of
from stillhouse.workflow.recipes import find_recipe, load_recipe

WAYS = {"0": "each stage imports", "1": "imports once"}
"""By the value of `STILLHOUSE_PRELOAD`."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the runs go")
    parser.add_argument("--recipes", nargs="+", default=["micro"])
    parser.add_argument("--page", type=Path, default=Path(__file__).with_suffix(".md"))
    arguments = parser.parse_args(argv)
    folder = arguments.folder.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    ways = " | ".join(f"{way}, s" for way in WAYS.values())
    lines = [f"| recipe | stages | {ways} | saved |", "|---|---|---|---|---|"]
    for recipe in arguments.recipes:
        uses = graph_of(load_recipe(find_recipe(recipe)))
        seconds = {value: repro(recipe, folder / f"{recipe}-{value}", value) for value in WAYS}
        made = [folder / f"{recipe}-{value}" / "artifacts" / "best" / "retriever" for value in WAYS]
        if digest_files(made[0]) != digest_files(made[1]):
            print(f"{recipe}: the retrievers differ", file=sys.stderr)
            return 1
        cells = " | ".join(f"{value:.0f}" for value in seconds.values())
        lines.append(f"| `{recipe}` | {len(uses)} | {cells} | {1 - seconds['1'] / seconds['0']:.0%} |")
    command = "Command: `python benchmarks/dvc_repro.py --folder build/dvc_repro`."
    about = "One run each. Seconds of the clock; both ways make the same retriever, to the last bit."
    heading = ["# `dvc repro`: imports", "", f"{command} {machine('torch', 'transformers', 'dvc')}", "", about, ""]
    write_page(arguments.page, [*heading, *lines])
    return 0


def repro(recipe: str, folder: Path, preload: str) -> float:
    """Seconds of the clock of a whole run in a new folder."""
    environment = os.environ | {PRELOAD: preload, QUIET: "1", WORK_ROOT: str(folder / "work")}
    subprocess.run([sys.executable, "-m", "stillhouse.cli", "new", str(folder), "--recipe", recipe], check=True)
    begun = time.perf_counter()
    subprocess.run(["dvc", "repro", "--quiet"], cwd=folder, env=environment, check=True)
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
