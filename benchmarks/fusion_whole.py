"""The fusions of fusion.py on whole corpora, with the start and the retriever that a run made; writes fusion_whole.md.

    python benchmarks/fusion_whole.py medquad=WORKSPACE [reqa-squad=WORKSPACE …]

WORKSPACE is a folder that `stillhouse new` wrote and in which `stillhouse run` has ended, such as one of forecasts.py.
What a corpus gave is kept in fusion_whole.measured.json beside this, so that corpora can be measured one by one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fusion import START, fusions, opened, reciprocal_ranks
from kept import read_kept, write_kept
from machine import machine
from notes import write_page
from quality_page import difference

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "fusion_whole.measured.json"
TRAINED = "retriever_2"
RETRIEVERS = {"start": ("fetch_model/encoder", "zero_shot_index/index")} | {
    "retriever 2": (f"{TRAINED}/retriever", f"{TRAINED}_index/index")
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workspaces", nargs="*", metavar="NAME=WORKSPACE", type=named, help="a corpus and its run")
    found = read_kept(MEASURED)
    for name, workspace in parser.parse_args(argv).workspaces:
        found[name] = measure(workspace / "artifacts", workspace / "work")
        write_kept(MEASURED, found)
    write_page(HERE / "fusion_whole.md", page_lines(found))
    return 0


def named(text: str) -> tuple[str, Path]:
    """`NAME=WORKSPACE`. Raises `ArgumentTypeError` unless the workspace has artifacts."""
    name, _, folder = text.partition("=")
    if not (Path(folder) / "artifacts").is_dir():
        raise argparse.ArgumentTypeError(f"must be NAME=WORKSPACE, a folder that holds `artifacts`, not {text!r}")
    return name, Path(folder).resolve()


def measure(artifacts: Path, work: Path) -> dict[str, Any]:
    """The size of a corpus, and RR@10 of every way of ranking, with its difference from the retriever alone."""
    found: dict[str, Any] = {"machine": machine("torch", "transformers")}
    for label, (retriever, index_at) in RETRIEVERS.items():
        corpus, candidates, index = opened(
            artifacts / "ingest/corpus", artifacts / retriever, artifacts / index_at, artifacts / "bm25/bm25", work
        )
        ranks = reciprocal_ranks(fusions(corpus, candidates, index), corpus, candidates)
        found |= {"passages": corpus.passage_count, "questions": len(ranks[START]), "ways": list(ranks)}
        found[label] = {
            name: [float(values_Q.mean()), *apart(values_Q, ranks[START])] for name, values_Q in ranks.items()
        }
    return found


def apart(values_Q: Any, others_Q: Any) -> tuple[float, float, float]:
    """The mean difference and its 95 % bootstrap interval over questions."""
    found = difference(values_Q, others_Q)
    return found.difference, found.low, found.high


def page_lines(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = ["# BM25 and a retriever together, on whole corpora", ""]
    lines += ["Command: `python benchmarks/fusion_whole.py NAME=WORKSPACE`, with runs of `forecasts.py`.", ""]
    for said in dict.fromkeys(one["machine"] for one in found.values()):
        lines += [said, ""]
    lines += ["RR@10 on test questions. In brackets: the difference from the retriever alone, with its 95 % bootstrap"]
    lines += ["interval over questions. The ways of ranking are those of [fusion.md](fusion.md).", ""]
    columns = [(one[label], f"{name}, {label}") for name, one in found.items() for label in RETRIEVERS]
    for name, one in found.items():
        lines += [f"{name} has {one['passages']:,} passages and {one['questions']:,} test questions."]
    lines += ["", f"| ranking | {' | '.join(title for _, title in columns)} |"]
    lines += ["|---|" + "---|" * len(columns)]
    for way in next(iter(found.values()))["ways"] if found else ():
        cells = [cell(*ways[way]) if way != START else f"{ways[way][0]:.3f}" for ways, _ in columns]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    return lines


def cell(mean: float, change: float, low: float, high: float) -> str:
    return f"{mean:.3f} ({change:+.3f}, {low:+.3f} to {high:+.3f})"


if __name__ == "__main__":
    sys.exit(main())
