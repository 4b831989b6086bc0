"""How well does a new retriever search an index that is only partly its own?

    python benchmarks/mixed_indexes.py --folder build/mixed [--data ../shared/data] [--corpora medquad scifact]

The start of the recipe `labelled` encodes a corpus; its index is the old one. Retriever 1 is trained from it as the
recipe does, and with `compatibility_weight` towards the old index. `adopt-index --share` then gives a growing part of
the passages vectors of the new retriever, and the new queries search each mixture. Results are written to
mixed_indexes.measured.json beside this script as they are made; mixed_indexes.md is written from that file.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from kept import read_kept, write_kept
from machine import machine
from notes import write_page
from quality_cells import SETS, SIZE, Cell, prepare
from quality_page import difference
from quality_run import MEASURE, labelled, ranks_of
from run_steps import step_once

from stillhouse.artifacts import read_manifest
from stillhouse.corpus.store import Corpus
from stillhouse.workflow.graph import graph_of, needed
from stillhouse.workflow.in_process import run_uses
from stillhouse.workflow.recipes import configs, find_recipe, load_recipe

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "mixed_indexes.measured.json"
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
WEIGHTS = {"fine_tune": 0.0, "compatible, 0.3": 0.3, "compatible, 1": 1.0}
"""Trainings and their `compatibility_weight`."""
LENGTH, SEED = 128, 1
OLD = "old"
"""The old queries in the old index."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where sources and artifacts go")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder that holds the data sets")
    parser.add_argument("--corpora", nargs="+", choices=SETS, default=["medquad", "scifact"])
    given = parser.parse_args(argv)
    torch.set_num_threads(1)
    os.environ["STILLHOUSE_QUIET"] = "1"
    found = read_kept(MEASURED)
    for corpus in given.corpora:
        if not (given.data / corpus).is_dir():
            print(f"skipped {corpus}: {given.data / corpus} is not here; name its parent with --data")
        elif corpus not in found:
            found[corpus] = measured(corpus, given.data.resolve(), given.folder.resolve() / corpus)
            write_kept(MEASURED, found)
    if found:
        write_page(MEASURED.with_name("mixed_indexes.md"), page_lines(found))
    return 0


def measured(name: str, data: Path, folder: Path) -> dict[str, Any]:
    """`{"values": {line: {share: RR@10 of each test question}}, "ratios": {line: {share: on dev}}, …}`."""
    cell = Cell(name, "all", SEED)
    prepare(cell, SIZE, data, folder)
    os.environ["STILLHOUSE_WORK"] = str(folder / "work")
    recipe = load_recipe(find_recipe("labelled"))
    recipe["ingest"] |= {"source": str(folder / "source"), "format": "beir"}
    recipe["fetch_model"] |= {"passage_length": LENGTH}
    recipe["retriever_1"] |= {"seed": SEED}
    uses, settings = needed(graph_of(recipe), ["zero_shot_run", "mine_1"]), configs(recipe, "recipe")
    run_uses(uses, settings, folder)
    corpus, start, old = folder / "ingest/corpus", folder / "fetch_model/encoder", folder / "zero_shot_index/index"
    opened = Corpus.open(corpus)
    result: dict[str, Any] = {
        "values": {OLD: {"0.0": ranks_of(opened, {OLD: folder / "zero_shot_run/run"})[OLD]}},
        "ratios": {},
        "passages": len(opened.passages),
        "questions": {split: labelled(opened, split) for split in ("train", "dev", "test")},
        "machine": machine("torch", "transformers"),
    }
    training = dict(recipe["retriever_1"])
    for line, weight in WEIGHTS.items():
        own = folder / line.replace(", ", "-")
        inputs = {"corpus": corpus, "encoder": start, "negatives": folder / "mine_1/negatives"}
        more = {}
        if weight:
            inputs["old_index"], more = old, {"compatibility_weight": weight}
        made = {port: own / port for port in ("retriever", "curves")}
        step_once("train-retriever", inputs, made, **training, **more)
        result["values"][line], result["ratios"][line] = {}, {}
        for share in SHARES:
            index = own / f"index-{share}"
            given = {"corpus": corpus, "retriever": own / "retriever", "old_index": old, "old_retriever": start}
            step_once("adopt-index", given, {"index": index}, least_ratio=0.0, share=share)
            run = own / f"run-{share}"
            searched = {"corpus": corpus, "retriever": own / "retriever", "index": index}
            step_once("retrieve", searched, {"run": run}, **recipe.get("zero_shot_run", {}))
            result["values"][line][str(share)] = ranks_of(opened, {line: run})[line]
            result["ratios"][line][str(share)] = read_manifest(index).facts["adopted"]["ratio"]
    return result


def page_lines(found: dict[str, Any]) -> list[str]:
    machines = sorted({of["machine"] for of in found.values()})
    lines = ["# Mixed indexes", "", "Command: `python benchmarks/mixed_indexes.py --folder build/mixed`.", ""]
    lines += ["\n".join(machines), ""]
    lines.append(
        f"{MEASURE} of the test questions. *Share* is the part of the passages with vectors of the new retriever. "
        "Differences are to the old queries in the old index, with 95 % bootstrap intervals over questions; p by "
        "randomisation. *Gate* is what `adopt-index` measures with nDCG@10 on dev: it refuses a mixture below 0.99."
    )
    for corpus, of in found.items():
        old_Q = np.array(of["values"][OLD]["0.0"])
        lines += ["", f"## {SETS[corpus]}", ""]
        asked = ", ".join(f"{count:,} {split}" for split, count in of["questions"].items())
        lines += [
            f"{of['passages']:,} passages; {asked} questions. Old queries in the old index: {old_Q.mean():.3f}.",
            "",
            f"| training | share | {MEASURE} | − old | interval | p | gate |",
            "|---|---|---|---|---|---|---|",
        ]
        for line in WEIGHTS:
            for share in SHARES:
                new_Q = np.array(of["values"][line][str(share)])
                apart = difference(new_Q, old_Q)
                lines.append(
                    f"| `{line}` | {share:.0%} | {new_Q.mean():.3f} | {apart.difference:+.3f} | {apart.low:+.3f} to "
                    f"{apart.high:+.3f} | {apart.randomisation_p:.4f} | {of['ratios'][line][str(share)]:.3f} |"
                )
    return lines


if __name__ == "__main__":
    sys.exit(main())
