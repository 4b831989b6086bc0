"""What does training forget, and do averages of weights keep it? Writes averages.md beside this.

    python benchmarks/averages.py --folder build/quality --work build/averages [--cell medquad-300-1 …]

It averages the weights of the start and of retriever 2 of finished runs of quality.py, and measures each average with
the test questions of all data sets among these runs. Finished runs are kept in averages.measured.json, so a stopped run
continues where it was.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kept import read_kept, write_kept
from machine import machine
from notes import write_page
from quality_cells import CELLS, SETS, read_qrels
from second_round import cell_of, ranked

from stillhouse.corpus.store import Corpus
from stillhouse.retrieval.fine_tuning.averaging import averaged
from stillhouse.retrieval.models.encoder import BiEncoder

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "averages.measured.json"
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Of retriever 2: 0 is the start, 1 is retriever 2."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="the folder of quality.py, with a folder per cell")
    parser.add_argument("--work", type=Path, required=True, help="for temporary files")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder that holds the data sets")
    names = [cell.name for cell in CELLS]
    parser.add_argument("--cell", nargs="+", choices=names, default=["medquad-300-1", "squad-passages-300-1"])
    arguments = parser.parse_args(argv)
    os.environ["STILLHOUSE_QUIET"] = "1"
    arguments.work.mkdir(parents=True, exist_ok=True)
    cells = [cell for cell in CELLS if cell.name in arguments.cell]
    tests = {cell.corpus: arguments.folder.resolve() / cell.name for cell in cells}
    found = read_kept(MEASURED)
    for cell in cells:
        if cell.name not in found or set(tests) - set(found[cell.name]["ranks"]):
            run = arguments.folder.resolve() / cell.name
            found[cell.name] = measured(run, tests, arguments.data, arguments.work.resolve())
            write_kept(MEASURED, found)
            print(cell.name, flush=True)
    write_page(HERE / "averages.md", page_lines(found))
    return 0


def measured(run: Path, tests: Mapping[str, Path], data: Path, work: Path) -> dict[str, Any]:
    """RR@10 of each test question of every data set, for each share of retriever 2 in the average."""
    artifacts = run / "ours" / "artifacts"
    start, encoder = (BiEncoder.load(artifacts / at) for at in ("fetch_model/encoder", "retriever_2/retriever"))
    ends = start.state_dict(), {name: value.clone() for name, value in encoder.state_dict().items()}
    found: dict[str, dict[str, list[float]]] = {}
    for corpus, tested in tests.items():
        passages = Corpus.open(tested / "ours/artifacts/ingest/corpus")
        asked = {"test": read_qrels(tested / "source/qrels/test.tsv")}
        found[corpus] = {}
        for share in SHARES:
            encoder.load_state_dict(averaged(*ends, share))
            found[corpus][str(share)] = ranked(passages, encoder, data / corpus, asked, work)["test"]
    return {"ranks": found, "machine": machine("torch", "transformers")}


def page_lines(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = ["# What training forgets, and averages of weights", ""]
    lines += ["`python benchmarks/averages.py --folder build/quality --work build/averages`", ""]
    lines += [
        "RR@10 on the test questions of each data set, searching all its passages. Share 0 is the start and share"
    ]
    lines += [
        "1 is retriever 2 of the run; between them are averages of their weights. In brackets: the difference from"
    ]
    lines += ["the start, with its 95 % bootstrap interval over questions.", ""]
    for name, run in found.items():
        corpus, labels, seed = name.rsplit("-", 2)
        columns = [corpus, *(other for other in run["ranks"] if other != corpus)]
        lines += [f"## Trained on {SETS[corpus]}, labels: {labels}, seed {seed}", ""]
        lines += [f"| share | {' | '.join(SETS[column] for column in columns)} |", "|---|" + "---|" * len(columns)]
        for share in map(str, SHARES):
            ranks = [run["ranks"][column] for column in columns]
            cells = [cell_of(of[share], of[str(SHARES[0])], float(share) > 0) for of in ranks]
            lines.append(f"| {float(share):g} | {' | '.join(cells)} |")
        lines.append("")
    return [*lines, *sorted({run["machine"] for run in found.values()})]


if __name__ == "__main__":
    sys.exit(main())
