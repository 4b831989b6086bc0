"""Why `sentence_transformers_recipe.py` finds one side ahead: this side's trainer, with the other side's choices.

    python benchmarks/recipe_reason.py squad-passages --folder build/recipe/squad-passages [--data ../shared/data]

Its folder is that of a finished run, whose settings it takes. `stillhouse, mined` differs from `sentence-transformers,
mined` in three choices: it begins with BM25's negatives and mines by what that gave, its negatives need no distance to
the positive, and its loss is 001's, which also keeps a positive apart from the negatives (`contrastive: simlm`). Here
the starting model mines with a relative margin of 0.05 and one schedule of all steps follows, with either loss: what is
left of the difference under `plain`, the loss of the other side, would be the trainer's own.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from recipe_ours import mine, train
from recipe_run import OURS, PEER, START, Run
from sentence_transformers_recipe import MEASURES, SETS

from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.figures import measure_runs
from stillhouse.evaluation.measures import parse_measures
from stillhouse.evaluation.significance import compare

LOSSES = ("plain", "simlm")
MINED = (f"{OURS}, mined", f"{PEER}, mined")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=SETS)
    parser.add_argument("--folder", type=Path, required=True, help="the folder of a finished run")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder that holds the data sets")
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES), help="those to train with")
    given = parser.parse_args(argv)
    if not (given.folder / f"{MINED[1]} run").is_dir():
        parser.error(f"{given.folder} holds no finished run; sentence_transformers_recipe.py makes one")
    made = Run(settings_of(given), (given.data / given.name).resolve())
    made.prepare()
    runs = {name: made.root / f"{name} run" / "run" for name in MINED}
    runs |= {f"one schedule, {loss}": one_schedule(made, loss) for loss in given.losses}
    print("\n".join(table(Corpus.open(made.corpus), runs)))
    return 0


def settings_of(given: argparse.Namespace) -> argparse.Namespace:
    """The settings of the finished run, each of the type that its text shows."""
    texts = json.loads((given.folder / "settings.json").read_text(encoding="utf-8"))
    numbers = {
        name: int(text) if text.isdigit() else float(text)
        for name, text in texts.items()
        if name not in ("name", "model")
    }
    return argparse.Namespace(**texts | numbers, folder=given.folder, data=given.data, page=None)


def one_schedule(run: Run, loss: str) -> Path:
    """The run of a retriever that was trained in one go, from the start, on what the start mines with a margin."""
    name = f"one schedule, {loss}"
    near = mine(run, "negatives by the start", START, run.start, 30, margin="relative")
    return run.run_of(name, train(run, name, run.start, near, 3, contrastive=loss))


def table(corpus: Corpus, runs: dict[str, Path]) -> list[str]:
    """Means on dev and test, and the paired difference on test to the other side."""
    measures = parse_measures(MEASURES)
    [dev], [test] = (measure_runs(corpus, runs, split, measures) for split in ("dev", "test"))
    first = str(measures[0])
    lines = [
        f"| system | dev {first} | {first} | difference to {MINED[1]} | p, randomisation |",
        "|---|---|---|---|---|",
    ]
    for name in runs:
        cells = [f"{part.means()[name][first]:.3f}" for part in (dev, test)]
        if name == MINED[1]:
            lines.append(f"| {name} | {' | '.join(cells)} | | |")
            continue
        values = (test.values[name] - test.values[MINED[1]])[[first]].to_numpy()
        [found] = compare(values, bootstrap_samples=2000, randomisation_samples=10000, seed=42)
        cells += [f"{found.difference:+.3f} ({found.low:+.3f} to {found.high:+.3f})", f"{found.randomisation_p:.3f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
