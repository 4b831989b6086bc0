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

from fusion import ON_QUESTIONS, START, cell, figures, fitted_on_dev, opened, reciprocal_ranks, unfitted
from kept import read_kept, write_kept
from machine import machine
from notes import write_page

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "fusion_whole.measured.json"
RETRIEVERS = {
    "start": ("fetch_model/encoder", "zero_shot_index/index"),
    "retriever 2": ("retriever_2/retriever", "retriever_2_index/index"),
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
        ways = unfitted(index) | {ON_QUESTIONS: fitted_on_dev(corpus, candidates)}
        ranks = reciprocal_ranks(ways, corpus, candidates)
        found |= {"passages": corpus.passage_count, "questions": len(ranks[START]), "ways": list(ranks)}
        found[label] = {way: figures(values_Q, ranks[START]) for way, values_Q in ranks.items()}
    return found


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
        cells = [cell(way, *ways[way]) for ways, _ in columns]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
