"""Runs every stage on one of the real data sets and writes the results page beside this script.

    python benchmarks/stages.py medquad --folder build/medquad [--data ../shared/data]

The folder keeps the artifacts. A stopped run continues where it was, and its time is the sum of its parts.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import yaml
from machine import machine
from notes import write_page

HERE = Path(__file__).resolve().parent
COST = "cost.json"
SETS = {
    "medquad": "MedQuAD",
    "squad-passages": "SQuAD passages",
    "peps-articles": "Python enhancement proposals, without labelled queries",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=SETS)
    parser.add_argument("--folder", type=Path, required=True, help="where the artifacts go")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder that holds the data sets")
    parser.add_argument("--page-only", action="store_true", help="write the page of a run that was made before")
    arguments = parser.parse_args()
    source = (arguments.data / arguments.name).resolve()
    if not source.is_dir():
        print(f"{source} is not here; give its parent with --data", file=sys.stderr)
        return 2
    arguments.folder.mkdir(parents=True, exist_ok=True)
    recipe = yaml.safe_load((HERE / f"{arguments.name}.yaml").read_text(encoding="utf-8"))
    recipe["ingest"]["source"] = str(source)
    params = arguments.folder / "params.yaml"
    params.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    used = (
        json.loads((arguments.folder / COST).read_text()) if arguments.page_only else measure(params, arguments.folder)
    )
    write_page(HERE / f"{arguments.name}.md", render(arguments.name, arguments.folder, used))
    return 0


def measure(params: Path, folder: Path) -> dict[str, Any]:
    """Runs the pipeline; wall time, processor time and peak memory of all parts of the run so far."""
    record = folder / COST
    used = json.loads(record.read_text()) if record.exists() else {"seconds": 0.0, "cpu_seconds": 0.0, "peak_bytes": 0}
    started = time.monotonic()
    command = [sys.executable, "-m", "stillhouse.cli", "run", "--params", str(params), "--folder", str(folder)]
    status = subprocess.run(command, check=False).returncode
    used["seconds"] += time.monotonic() - started
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    used["cpu_seconds"] += children.ru_utime + children.ru_stime
    used["peak_bytes"] = max(used["peak_bytes"], children.ru_maxrss * 1024)
    record.write_text(json.dumps(used))
    if status:
        sys.exit(status)
    return used


def render(name: str, folder: Path, used: dict[str, Any]) -> list[str]:
    """The results page, from the files that `evaluate` wrote."""
    evaluation = folder / "artifacts" / "evaluate" / "evaluation"
    metrics, dev, intervals, tests = (
        json.loads((evaluation / f"{file}.json").read_text())
        for file in ("metrics", "dev_metrics", "intervals", "significance")
    )
    order = json.loads((evaluation / "manifest.json").read_text())["facts"]["order"]
    corpus = json.loads((folder / "artifacts" / "ingest" / "corpus" / "manifest.json").read_text())["facts"]
    minutes = f"{used['seconds'] / 60:.0f} min, {used['cpu_seconds'] / 60:.0f} min of processor time"
    cost = f"{minutes}, peak memory {used['peak_bytes'] / 2**30:.1f} GiB"
    left_out = ", ".join(f"{count:,} of {split}" for split, count in corpus["sampled_out"].items() if count)
    recipe = yaml.safe_load((folder / "params.yaml").read_text(encoding="utf-8"))
    depth, length = recipe["reranked_run"]["depth"], recipe["fetch_model"]["passage_length"]
    measures = ["RR@10", "nDCG@10", "R@50", "R@100"]
    queries = " / ".join(f"{corpus['queries'][split]:,} {split}" for split in ("train", "dev", "test"))
    lines = [
        f"# {SETS[name]}: {len(order['run'])} systems, stage by stage",
        "",
        f"Command: `python benchmarks/stages.py {name} --folder build/{name}`; settings: [`{name}.yaml`]({name}.yaml).",
        "",
        machine("torch", "transformers", "faiss-cpu", "bm25s", "dvc"),
        "",
        f"All stages together: {cost}.",
        *synthetic(corpus),
        "",
        f"{corpus['passages']:,} passages, cut at {length} tokens; queries {queries}.",
        f"A seeded sample leaves out: {left_out or 'no query'}. `reranked` re-orders retriever 2's best {depth}.",
        "Figures are on the test split; choices were made on dev.",
        "",
        "| system | " + " | ".join(measures) + " | RR@10, 95 % interval | dev RR@10 |",
        "|---|" + "---|" * (len(measures) + 2),
    ]
    for system in order["run"]:
        values = metrics[system]
        low, high = intervals[system]["RR@10"]
        cells = [f"{values[measure]:.3f}" for measure in measures]
        lines.append(f"| `{system}` | {' | '.join(cells)} | {low:.3f} to {high:.3f} | {dev[system]['RR@10']:.3f} |")
    return [*lines, "", *comparisons(tests, order["run"]), "", *curves(folder, order["curves"])]


def synthetic(corpus: Any) -> list[str]:
    """What a page says of queries that were made from the corpus; nothing where they are the source's."""
    if corpus["labels"] != "synthetic":
        return []
    made = "; ".join(
        f"{split}: {', '.join(f'{count:,} {task}' for task, count in counts.items() if count)}"
        for split, counts in corpus["pair_queries"].items()
    )
    said = (
        f"**All figures are synthetic**: the pair tasks take sentences of the articles as queries ({made}). Queries of "
    )
    return ["", said + "dev and test come from articles that no training query comes from."]


def comparisons(tests: Any, systems: list[str]) -> list[str]:
    """The paired tests, on RR@10."""
    lines = ["Paired differences in RR@10, with 95 % bootstrap intervals; p by paired t-test, Holm-corrected:", ""]
    lines += ["| better? | than | difference | interval | p | p, corrected |", "|---|---|---|---|---|---|"]
    for system in systems:
        for baseline, by_measure in tests.get(system, {}).items():
            test = by_measure["RR@10"]
            lines.append(
                f"| `{system}` | `{baseline}` | {test['difference']:+.3f} | {test['low']:+.3f} to {test['high']:+.3f} "
                f"| {chance(test['t_test_p'])} | {chance(test['t_test_p_holm'])} |"
            )
    return lines


def chance(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def curves(folder: Path, trainings: list[str]) -> list[str]:
    """The held-out loss of every training, before and at the kept step."""
    lines = ["| training | steps | held-out loss at the start | kept |", "|---|---|---|---|"]
    for training in trainings:
        path = folder / "artifacts" / training / "curves" / "curves.csv"
        rows = [line.split(",") for line in path.read_text().splitlines()[1:]]
        losses = [float(row[2]) for row in rows]
        lines.append(f"| `{training}` | {rows[-1][0]} | {losses[0]:.3f} | {min(losses):.3f} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
