"""Does pre-training still help after every stage? Two real data sets, from an encoder trained here.

    python benchmarks/objectives.py start --folder build/objectives           the encoder, by `mlm` on wiki-intro
    python benchmarks/objectives_stages.py --folder build/objectives [--set medquad] [--seeds 42,43]

Runs the recipe `language-model` on each set twice, with and without its pre-training, and writes objectives_stages.md.
A stopped run continues where it was; `--page-only` writes the page of the runs that were made.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from machine import machine
from notes import write_page

from stillhouse.cli import main as stillhouse
from stillhouse.evaluation.significance import compare
from stillhouse.workflow.graph import graph_of
from stillhouse.workflow.recipes import find_recipe, load_recipe

HERE = Path(__file__).resolve().parent
SETS = {"squad-passages": "SQuAD passages", "medquad": "MedQuAD"}
RECIPE = "language-model"
WITHOUT, WITH = "without", "with"
SHARED = ("fetch_model", "ingest", "validate", "bm25", "zero_shot_index", "zero_shot_run")
"""The uses whose outputs do not depend on the pre-training or its seed."""
PRETRAINING = ("tokenize", "lm_head", "pretraining")
MEASURE, EVALUATION = "RR@10", Path("artifacts", "evaluate", "evaluation")
SAMPLES = 10_000
"""Bootstrap samples of an interval and random sign flips of a p-value."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="that of objectives.py, which holds the start")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder that holds the data sets")
    parser.add_argument("--set", nargs="+", choices=SETS, default=list(SETS), help="these data sets (default: all)")
    parser.add_argument("--seeds", default="42", help="seeds of the trainings (default: 42)")
    parser.add_argument("--page-only", action="store_true", help="write the page of the runs that were made")
    arguments = parser.parse_args()
    if not arguments.page_only:
        for seed in map(int, arguments.seeds.split(",")):
            for name in arguments.set:
                for arm in (WITHOUT, WITH):
                    if code := run(name, arm, seed, arguments.folder, arguments.data):
                        return code
    write_page(HERE / "objectives_stages.md", page(arguments.folder))
    return 0


def run(name: str, arm: str, seed: int, folder: Path, data: Path) -> int:
    """The whole recipe on a set, with or without pre-training; the exit code of `stillhouse run`."""
    start, source = folder / "start" / "encoder", (data / name).resolve()
    for place in (start, source):
        if not place.is_dir():
            print(f"{place} is not here; see --help", file=sys.stderr)
            return 2
    place = run_folder(folder, name, arm, seed)
    place.mkdir(parents=True, exist_ok=True)
    params = place / "params.yaml"
    params.write_text(yaml.safe_dump(recipe_of(name, arm, seed, start.resolve(), source)), encoding="utf-8")
    made = run_folder(folder, name, WITHOUT, seed) / "artifacts"
    for use in SHARED if arm == WITH else ():
        if not (place / "artifacts" / use).is_dir():
            shutil.copytree(made / use, place / "artifacts" / use)
    return stillhouse(["run", "--params", str(params), "--folder", str(place)])


def run_folder(folder: Path, name: str, arm: str, seed: int) -> Path:
    return folder / "stages" / f"{name}-{arm}-{seed}"


def recipe_of(name: str, arm: str, seed: int, start: Path, source: Path) -> dict[str, Any]:
    """The shipped recipe with the settings of objectives_stages.yaml; WITHOUT leaves the pre-training out."""
    own = yaml.safe_load((HERE / "objectives_stages.yaml").read_text(encoding="utf-8"))
    recipe: dict[str, Any] = load_recipe(find_recipe(RECIPE))
    for changes in (own["recipe"], own["sets"][name]):
        for section, values in changes.items():
            recipe[section] = recipe.get(section, {}) | values
    recipe["fetch_model"]["model"], recipe["ingest"]["source"] = str(start), str(source)
    stages = {stage: row for stage, row in recipe["stages"].items() if stage != "averaged"} | own["stages"]
    recipe["stages"] = stages | (dict.fromkeys(PRETRAINING, "none") if arm == WITHOUT else {})
    del recipe["averaged"]
    for use in graph_of(recipe):
        if use.step_name in ("pretrain", "train-retriever"):
            recipe[use.section] = recipe.get(use.section, {}) | {"seed": seed}
    return {section: values for section, values in recipe.items() if arm == WITH or section not in PRETRAINING}


def page(folder: Path) -> list[str]:
    lines = ["# Pre-training through every stage", "", "Commands:", ""]
    lines += ["    python benchmarks/objectives.py start --folder build/objectives"]
    found = {name: seeds_of(folder, name) for name in SETS}
    seeds = ",".join(map(str, sorted({seed for some in found.values() for seed in some})))
    lines += [f"    python benchmarks/objectives_stages.py --folder build/objectives --seeds {seeds}", ""]
    lines += [
        machine("torch", "transformers"),
        "",
        (HERE / "objectives_stages.about.md").read_text(encoding="utf-8").strip(),
    ]
    for name, some in found.items():
        if some:
            lines += ["", f"## {SETS[name]}", "", *table(folder, name, some)]
    return lines


def seeds_of(folder: Path, name: str) -> list[int]:
    """The seeds whose runs with and without pre-training are both complete."""
    seeds = {int(path.name.rpartition("-")[2]) for path in folder.glob(f"stages/{name}-{WITH}-*")}
    complete = {
        seed
        for seed in seeds
        if all(
            (run_folder(folder, name, arm, seed) / EVALUATION / "manifest.json").is_file() for arm in (WITHOUT, WITH)
        )
    }
    return sorted(complete)


def table(folder: Path, name: str, seeds: Sequence[int]) -> list[str]:
    """The figures of both arms on test, and the difference of each system, of values averaged over seeds."""
    without, within = (
        mean_over([values_of(run_folder(folder, name, arm, seed)) for seed in seeds]) for arm in (WITHOUT, WITH)
    )
    lines = [f"| system | without | with | difference in {MEASURE} | 95 % interval | p |", "|---|---|---|---|---|---|"]
    for system in without:
        before, after = without[system], within[system]
        cells = [f"{before.mean():.3f}", f"{after.mean():.3f}"]
        if system in ("bm25", "zero_shot"):
            cells += ["", "", ""]
        else:
            [test] = compare(
                (after - before).to_numpy()[:, None], bootstrap_samples=SAMPLES, randomisation_samples=SAMPLES, seed=42
            )
            cells += [f"{test.difference:+.3f}", f"{test.low:+.3f} to {test.high:+.3f}", chance(test.randomisation_p)]
        lines.append(f"| `{system}` | {' | '.join(cells)} |")
    lines += ["", f"{len(next(iter(without.values()))):,} test questions; {about(folder, name, seeds)}."]
    return lines


def values_of(place: Path) -> dict[str, pd.Series]:
    """The measure of every test query of a run, by system in the report's order, indexed by query."""
    folder = place / EVALUATION
    order = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["facts"]["order"]["run"]
    rows = pd.read_parquet(folder / "per_query.parquet")
    rows = rows[rows["split"] == "test"]
    return {name: rows[rows["system"] == name].set_index("query_id")[MEASURE].sort_index() for name in order}


def mean_over(runs: Sequence[Mapping[str, pd.Series]]) -> dict[str, pd.Series]:
    """Every system's values, averaged over the runs of several seeds."""
    return {name: pd.concat([run[name] for run in runs], axis=1).mean(axis=1) for name in runs[0]}


def about(folder: Path, name: str, seeds: Sequence[int]) -> str:
    """The seeds and the winners of the runs."""
    number = "one seed" if len(seeds) == 1 else f"mean of {len(seeds)} seeds"
    without, within = (
        ", ".join(f"`{winner(run_folder(folder, name, arm, seed))}`" for seed in seeds) for arm in (WITHOUT, WITH)
    )
    return f"{number}. `best` is {without} without pre-training and {within} with it"


def winner(place: Path) -> str:
    facts = json.loads((place / "artifacts" / "best" / "retriever" / "manifest.json").read_text(encoding="utf-8"))
    return str(facts["facts"]["winner"])


def chance(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


if __name__ == "__main__":
    sys.exit(main())
