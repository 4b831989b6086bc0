"""Without labels: which queries made from a corpus teach a retriever most? Writes origins.md beside this.

    python benchmarks/origins.py --folder build/origins [--data ../shared/data] [--only sample …]

Every row is the recipe `unlabelled` with one change: where its train queries come from, a filter on them, or a teacher.
It trains from the start, and people's test questions, which choose nothing, measure it beside BM25 and the start.
Measured rows are kept in origins.measured.json, so a stopped run continues where it was.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from kept import read_kept, write_kept
from machine import machine
from notes import write_page
from quality_cells import SETS, SIZE, Cell, prepare
from quality_page import difference
from quality_run import ranks_of, read_yaml, stillhouse, timed
from run_steps import step_once

from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.significance import Comparison

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "origins.measured.json"
SAMPLE = "sample"
TITLES = {SAMPLE: "The built-in sample", **SETS}
LENGTH = 128
CELLS = ("sample", "scifact", "squad-passages", "medquad")
BM25, START, START_BM25, TRAINED, TRAINED_BM25 = "bm25", "start", "start + bm25", "trained", "trained + bm25"
TEACHER = {
    "retriever": "fetch_model/encoder",
    "index": "zero_shot_index/index",
    "bm25": "bm25/bm25",
    "reranker": "none",
}


@dataclass(frozen=True)
class Variant:
    """A change of the recipe: settings by section, and stages. `corpora` are those that can have such queries."""

    label: str
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    stages: Mapping[str, Any] = field(default_factory=dict)
    corpora: tuple[str, ...] = CELLS


def asked(*tasks: str, titles: str = "space") -> dict[str, dict[str, Any]]:
    return {"ingest": {"pair_tasks": list(tasks), "titles": titles}}


VARIANTS = {
    "default": Variant("as `unlabelled`"),
    "round-trip": Variant("the same, round trip at 20", {"mine_2": {"round_trip_depth": 20}}),
    "teacher": Variant(
        "the same, with the teacher and gate of `labelled`",
        {
            "teacher": {"kind": "best", "depth": 50},
            "distilled": {"alpha": 0.2, "weak_teacher": "ignore", "negatives_per_query": 3},
        },
        {"teacher": TEACHER},
    ),
    "bfs": Variant("sentences of first sections", asked("bfs"), corpora=(SAMPLE,)),
    "wlp": Variant("sentences of linked articles", asked("wlp"), corpora=(SAMPLE,)),
    "span": Variant("spans", asked("span")),
    "heading": Variant("headings", asked("heading"), corpora=(SAMPLE,)),
    "title": Variant("titles (left out of the texts)", asked("title", titles="left_out"), corpora=(SAMPLE, "scifact")),
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where sources and artifacts go")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder that holds the data sets")
    parser.add_argument("--only", nargs="+", choices=CELLS, default=list(CELLS), metavar="CORPUS")
    parser.add_argument("--rows", nargs="+", choices=VARIANTS, default=list(VARIANTS), metavar="ROW")
    arguments = parser.parse_args(argv)
    os.environ["STILLHOUSE_QUIET"] = "1"
    found = read_kept(MEASURED)
    for corpus in arguments.only:
        if corpus != SAMPLE and not (arguments.data / corpus).is_dir():
            print(f"skipped {corpus}: {arguments.data / corpus} is not here; name its parent with --data")
            continue
        folder = arguments.folder.resolve() / corpus
        for name in arguments.rows:
            if name in found.get(corpus, {}) or corpus not in VARIANTS[name].corpora:
                continue
            row = measured(corpus, VARIANTS[name], folder, folder / name, arguments.data.resolve())
            found.setdefault(corpus, {})[name] = row | {"machine": machine("torch", "transformers")}
            write_kept(MEASURED, found)
            print(
                corpus, name, {system: round(float(np.mean(of)), 4) for system, of in row["ranks"].items()}, flush=True
            )
    if found:
        write_page(HERE / "origins.md", page_lines(found))
    return 0


def measured(corpus: str, variant: Variant, folder: Path, own: Path, data: Path) -> dict[str, Any]:
    """The reciprocal rank of every test question of people, by system, and how many train queries were made."""
    os.environ["STILLHOUSE_WORK"] = str(folder / "work")
    if corpus != SAMPLE:
        prepare(Cell(corpus, "none", 1), SIZE, data, folder)
    if not own.is_dir():
        source = SAMPLE if corpus == SAMPLE else str(folder / "source")
        stillhouse("new", str(own), "--recipe", "unlabelled", "--source", source)
        write_settings(own / "params.yaml", variant)
    seconds = timed(lambda: stillhouse("run", "--params", "params.yaml", "--until", "distilled_run", cwd=own))
    artifacts = own / "artifacts"
    runs = {BM25: artifacts / "bm25" / "run", START: searched(artifacts, own, "fetch_model/encoder", "zero_shot_index")}
    runs[TRAINED] = artifacts / "distilled_run" / "run"
    for name, model, index in (
        (START_BM25, "fetch_model/encoder", "zero_shot_index"),
        (TRAINED_BM25, "distilled/retriever", "distilled_index"),
    ):
        runs[name] = searched(artifacts, own, model, index, with_bm25=True)
    opened = Corpus.open(artifacts / "ingest" / "corpus")
    return {
        "ranks": ranks_of(opened, runs),
        "train": len(opened.queries_of("train")),
        "passages": len(opened.passages),
        "seconds": round(seconds),
    }


def searched(artifacts: Path, own: Path, model: str, index: str, with_bm25: bool = False) -> Path:
    """The run of a retriever, alone or with BM25 by the fixed combination."""
    inputs = {"corpus": artifacts / "ingest" / "corpus", "retriever": artifacts / model}
    inputs["index"] = artifacts / index / "index"
    folder = own / "searched" / f"{index}{'-bm25' if with_bm25 else ''}"
    if with_bm25:
        step_once(
            "hybrid", inputs | {"bm25": artifacts / "bm25" / "bm25"}, {"hybrid": folder / "hybrid"}, method="spread"
        )
        inputs["hybrid"] = folder / "hybrid"
    step_once("retrieve", inputs, {"run": folder / "run"})
    return folder / "run"


def write_settings(path: Path, variant: Variant) -> None:
    """Adds a variant's changes to the settings that `new` wrote."""
    given = read_yaml(path)
    given["fetch_model"]["passage_length"] = min(LENGTH, given["fetch_model"]["passage_length"])
    given["stages"] |= variant.stages
    for section, changes in variant.settings.items():
        given[section] = given.get(section, {}) | changes
    path.write_text(yaml.safe_dump(given, sort_keys=False), encoding="utf-8")


ABOUT = """RR@10 on questions that people asked and that train and choose nothing. Each row is the recipe `unlabelled`
with one change, one seed; passages are cut at 128 tokens. *Trained* is the retriever that the made queries train from
the start; *with BM25* is the weighted sum that `hybrid` makes without labels. Where a row leaves titles out, so do BM25
and the start in that row. Differences are those of the trained retriever to the start, and of both with BM25, with 95 %
bootstrap intervals over questions and p by randomisation, not corrected for the number of rows. Seconds are those of
the processor."""
COLUMNS = (
    "queries | train queries | BM25 | start | with BM25 | trained | with BM25 | trained − start | p | "
    "both with BM25 | p"
)


def page_lines(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = ["# Which queries made from a corpus teach a retriever most?", ""]
    lines += ["Command: `python benchmarks/origins.py --folder build/origins`", "", ABOUT]
    for corpus in (name for name in CELLS if name in found):
        rows = found[corpus]
        of = next(iter(rows.values()))
        lines += ["", f"## {TITLES[corpus]}", ""]
        lines += [f"{of['passages']:,} passages and {len(of['ranks'][BM25]):,} test questions.", ""]
        lines += [f"| {COLUMNS} | seconds |", "|---" * (COLUMNS.count("|") + 2) + "|"]
        for name in (name for name in VARIANTS if name in rows):
            row = rows[name]
            means = [f"{np.mean(row['ranks'][of]):.3f}" for of in (BM25, START, START_BM25, TRAINED, TRAINED_BM25)]
            of_Q = {system: np.array(values) for system, values in row["ranks"].items()}
            alone, both = difference(of_Q[TRAINED], of_Q[START]), difference(of_Q[TRAINED_BM25], of_Q[START_BM25])
            cells = [VARIANTS[name].label, f"{row['train']:,}", *means, *shown(alone), *shown(both)]
            lines.append(f"| {' | '.join(cells)} | {row['seconds']} |")
    return [*lines, "", *sorted({row["machine"] for rows in found.values() for row in rows.values()})]


def shown(of: Comparison) -> tuple[str, str]:
    return f"{of.difference:+.3f} ({of.low:+.3f} to {of.high:+.3f})", f"{of.randomisation_p:.3f}"


if __name__ == "__main__":
    sys.exit(main())
