"""Why does `sentence_transformers_recipe.py` find one side ahead? Uses this trainer with the other side's choices.

    python benchmarks/recipe_reason.py squad-passages --folder build/recipe/squad-passages [--data ../shared/data]

It takes the settings of `sentence_transformers_recipe.py` and its folder, and reuses the results that are there.
`stillhouse, mined` differs from `sentence-transformers, mined` in four choices. It starts with BM25's negatives and
mines with the resulting retriever. Its negatives need no margin to the positive. It draws them from the thirty best
instead of the three best. Its loss is SimLM's, which also pushes a positive away from the negatives (`contrastive:
simlm`). Here the starting model mines with a relative margin of 0.05, and one schedule of all steps follows, with
either loss and either depth. The difference that remains with the other side's choices would come from the trainer.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from recipe_ours import mine, train
from recipe_peer import MINED, Peer
from recipe_run import OURS, PEER, START, Run
from sentence_transformers_recipe import MEASURES, absent, parser_of

from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.figures import measure_runs
from stillhouse.evaluation.measures import parse_measures
from stillhouse.evaluation.significance import compare

THEIRS = f"{PEER}, mined"
OWN = f"{OURS}, mined"


@dataclass(frozen=True)
class Choice:
    """Settings of the trainer here, in the place of those of `stillhouse, mined`."""

    contrastive: str
    negatives_depth: int


CHOICES = {
    "plain": Choice("plain", 30),
    "simlm": Choice("simlm", 30),
    "plain-hardest": Choice("plain", MINED),
    "simlm-hardest": Choice("simlm", MINED),
}


def main(argv: list[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--choices", nargs="+", choices=CHOICES, default=list(CHOICES), help="those to train with")
    given = parser.parse_args(argv)
    source, chosen = (given.data / given.name).resolve(), given.choices
    missing = absent(source)
    if missing:
        print(f"skipped: {missing}", file=sys.stderr)
        return 0
    del given.choices
    made = Run(given, source)
    made.prepare()
    Peer(made).make_mined()
    names = [OWN, THEIRS] if (made / OWN).is_dir() else [THEIRS]
    runs = {name: made.run_of(name, made.retriever(name)) for name in names}
    runs |= {f"one schedule, {name}": one_schedule(made, name, CHOICES[name]) for name in chosen}
    print("\n".join(table(Corpus.open(made.corpus), runs)))
    return 0


def one_schedule(run: Run, choice_name: str, choice: Choice) -> Path:
    """The run of a retriever that was trained in one go, from the start, on what the start mines with a margin."""
    name = f"one schedule, {choice_name}"
    near = mine(run, "negatives by the start", START, run.start, 30, margin="relative")
    trained = train(
        run,
        name,
        run.start,
        near,
        3,
        contrastive=choice.contrastive,
        negatives_depth=choice.negatives_depth,
    )
    return run.run_of(name, trained)


def table(corpus: Corpus, runs: dict[str, Path]) -> list[str]:
    """Means on dev and test, and the paired difference on test to the other side."""
    measures = parse_measures(MEASURES)
    [dev], [test] = (measure_runs(corpus, runs, split, measures) for split in ("dev", "test"))
    first = str(measures[0])
    lines = [
        f"| system | dev {first} | {first} | difference from {THEIRS} | p, randomisation |",
        "|---|---|---|---|---|",
    ]
    for name in runs:
        cells = [f"{part.means()[name][first]:.3f}" for part in (dev, test)]
        if name == THEIRS:
            lines.append(f"| {name} | {' | '.join(cells)} | | |")
            continue
        values = (test.values[name] - test.values[THEIRS])[[first]].to_numpy()
        [found] = compare(values, bootstrap_samples=2000, randomisation_samples=10000, seed=42)
        cells += [f"{found.difference:+.3f} ({found.low:+.3f} to {found.high:+.3f})", f"{found.randomisation_p:.3f}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
