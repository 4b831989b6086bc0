"""Measures memory of the real steps by size of corpus, with a tiny model and the same queries; writes memory.md.

    python benchmarks/memory.py --folder build/memory [--sizes 100000 1000000 3000000]

Each step runs in a process of its own on corpora of short passages of random words, which `encode` cuts at 16 tokens.
The number of queries stays the same, so the growth is the cost of passages. *Own* memory leaves out memory-mapped files
(texts, vectors, the index, negatives), whose pages the system reclaims when it needs them. A stopped run continues with
the first step that has no result.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine
from notes import write_page
from own_process import measure, run_alone
from scale_tasks import run_step
from word_passages import word_blocks

HERE = Path(__file__).resolve().parent
SIZES = (100_000, 1_000_000, 3_000_000)
QUERIES = {"train": 400, "dev": 50, "test": 50}
MEAN_WORDS, LENGTH, PAIR_LENGTH, WIDTH = 8, 16, 32, 32
DEPTH, SCORED = 50, 20
"""Negatives of a query that are mined, and of these that the teacher scores."""
A_PASSAGE = 300
"""Bytes of own memory that a step may take a passage: digests and numbers (docs/reference/limits.md)."""
NOTHING = 16
"""Bytes a passage that say nothing: libraries move by some MiB from run to run."""
RESULTS = "results.json"

Row = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """A step with its settings, and its inputs and outputs by their folders' names."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    settings: dict[str, Any]


RUNS = {
    "ingest": Run((), ("corpus",), {}),
    "encode": Run(("corpus", "retriever"), ("vectors",), {"cache_gib": 0.0}),
    "index": Run(("corpus", "retriever", "vectors"), ("index",), {}),
    "mine": Run(("corpus", "retriever", "index"), ("negatives",), {"negatives_depth": DEPTH}),
    "score-pairs": Run(
        ("corpus", "negatives", "reranker"), ("teacher",), {"depth": SCORED, "dev_negatives_scored": SCORED}
    ),
    "retrieve": Run(("corpus", "retriever", "index"), ("run",), {"depth": 100}),
    "evaluate": Run(("corpus", "run/zero_shot"), ("evaluation",), {}),
}
FOLDERS = {"run/zero_shot": "run"}
"""Inputs that are another step's output by another name."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where corpora and results go")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="passages, ascending, two at least")
    parser.add_argument("--page", type=Path, default=HERE / "memory.md", help="the results page")
    parser.add_argument("--measure", nargs=2, metavar=("STEP", "SIZE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.measure:
        step, size = arguments.measure
        print(json.dumps(measure_step(step, arguments.folder, int(size))))
        return 0
    if len(arguments.sizes) < 2 or arguments.sizes != sorted(set(arguments.sizes)):
        parser.error("--sizes ascend, and are two at least")
    for size in arguments.sizes:
        run_size(arguments.folder, size)
    lines = render(read_results(arguments.folder), arguments.sizes)
    print("\n".join(lines))
    write_page(arguments.page, lines)
    return 0


def run_size(folder: Path, size: int) -> None:
    place = folder / f"{size}"
    if not (folder / "retriever").is_dir():
        make_models(folder)
    for step in RUNS:
        results = read_results(folder)
        if any((row["step"], row["passages"]) == (step, size) for row in results):
            continue
        if not (place / "source").is_dir():
            write_source(place / "source", size)
        words = ["--folder", str(folder), "--measure", step, str(size)]
        own = {"STILLHOUSE_QUIET": "1", "STILLHOUSE_WORK": str(place / "work"), "HF_HUB_OFFLINE": "1"}
        found = run_alone(HERE / "memory.py", words, **own)
        print(f"{size:,} {step}: {found['seconds']:.1f} s, own {found['own']:.0f} MiB", file=sys.stderr, flush=True)
        write_results(folder, [*results, {"step": step, "passages": size, **found}])
    shutil.rmtree(place, ignore_errors=True)


def make_models(folder: Path) -> None:
    """A retriever and a cross-encoder of one layer of random weights, with the sample model's tokenizer."""
    import torch
    from training_examples import MODEL
    from transformers import AutoTokenizer, BertConfig, BertModel

    from stillhouse.retrieval.models.cross_encoder import CrossEncoder
    from stillhouse.retrieval.models.model_place import locate

    tokenizer = AutoTokenizer.from_pretrained(locate(MODEL), local_files_only=True, trust_remote_code=False)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=2 * WIDTH,
        max_position_embeddings=64,
    )
    tokenizer.model_max_length = 64
    start = folder / "start"
    BertModel(config).save_pretrained(start)
    tokenizer.save_pretrained(start)
    CrossEncoder.start(start, PAIR_LENGTH).save(folder / "reranker")
    lengths = {"query_length": LENGTH, "passage_length": LENGTH}
    run_step("fetch-model", {}, {"encoder": folder / "retriever"}, model=str(start), **lengths)


def write_source(folder: Path, passages: int) -> None:
    """A source in MS MARCO's format: queries are words of evenly spaced passages, which answer them."""
    folder.mkdir(parents=True)
    count = sum(QUERIES.values())
    asked = set(np.linspace(0, passages - 1, count).astype(int).tolist())
    queries = []
    with (folder / "collection.tsv").open("w", encoding="utf-8") as file:
        for begin, texts in word_blocks(passages, MEAN_WORDS):
            file.writelines(f"p{begin + place}\t{text}\n" for place, text in enumerate(texts))
            own = [row for row in range(begin, begin + len(texts)) if row in asked]
            queries += [(row, " ".join(texts[row - begin].split()[:4])) for row in own]
    chosen = iter(np.random.default_rng(0).permutation(len(queries)).tolist())
    for split, size in QUERIES.items():
        own = [queries[next(chosen)] for _ in range(size)]
        text = "".join(f"q{row}\t{query}\n" for row, query in own)
        (folder / f"queries.{split}.tsv").write_text(text, encoding="utf-8")
        judged = "".join(f"q{row}\t0\tp{row}\t1\n" for row, _ in own)
        (folder / f"qrels.{split}.tsv").write_text(judged, encoding="utf-8")


def measure_step(step: str, folder: Path, size: int) -> Row:
    """Runs a step; models are in `folder`, all else is in the folder of its size."""
    run, place = RUNS[step], folder / f"{size}"
    settings = run.settings | ({"source": str(place / "source")} if step == "ingest" else {})

    def where(name: str) -> Path:
        return folder / name if name in ("retriever", "reranker") else place / FOLDERS.get(name, name)

    inputs, outputs = ({name: where(name) for name in names} for names in (run.inputs, run.outputs))
    return measure(lambda: check(step, size, run_step(step, inputs, outputs, **settings).facts))


def check(step: str, size: int, facts: dict[str, Any]) -> None:
    """Checks that the step did what is measured."""
    if step in ("ingest", "encode"):
        assert facts["passages"] == size, facts
    if step == "score-pairs":
        asked = QUERIES["train"] + QUERIES["dev"]
        assert facts["pairs"] == asked * (1 + SCORED), facts


def render(results: Sequence[Row], sizes: Sequence[int]) -> list[str]:
    asked = f"--sizes {' '.join(map(str, sizes))}"
    by_step = {(row["step"], row["passages"]): row for row in results}
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    lines = [
        "# Memory of the steps, by the size of the corpus",
        "",
        f"Command: `python benchmarks/memory.py --folder build/memory {asked}`.",
        "",
        f"{machine('torch', 'transformers', 'numpy', 'pandas', 'pyarrow', 'faiss-cpu')} OMP_NUM_THREADS: {threads}.",
        "",
        f"Passages have {MEAN_WORDS} random words on average. The model has one layer of width {WIDTH} with random",
        f"weights and the sample model's tokenizer; texts are cut at {LENGTH} tokens. Every size has",
        f"{sum(QUERIES.values())} queries with one relevant passage each. {DEPTH} negatives are mined for each train",
        f"and dev query, and {SCORED} are scored; runs have 100 passages. Every step is the real one, in a process of",
        "its own. *Own* is memory that only the process can free, sampled 100 times a second, including libraries and",
        "model. *Peak* also includes the pages of mapped files, which the system can reclaim.",
        "",
        "| step | passages | seconds | own MiB | peak MiB |",
        "|---|---|---|---|---|",
    ]
    for step in RUNS:
        for size in sizes:
            row = by_step[step, size]
            figures = f"{row['seconds']:.1f} | {row['own']:,.0f} | {row['peak']:,.0f}"
            lines.append(f"| `{step}` | {size:,} | {figures} |")
    return [*lines, "", *grown(by_step, sizes)]


def grown(by_step: dict[tuple[str, int], Row], sizes: Sequence[int]) -> Iterator[str]:
    """By how much own memory grows a passage, from one size to the next, and what that means."""
    steps = list(pairwise(sizes))
    heads = ["step", *(f"{few:,} to {many:,}, bytes a passage" for few, many in steps), ""]
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for step in RUNS:
        growth = [
            (by_step[step, many]["own"] - by_step[step, few]["own"]) * 2**20 / (many - few) for few, many in steps
        ]
        yield f"| {' | '.join([f'`{step}`', *(f'{each:.0f}' for each in growth), meaning(growth[-1])])} |"


def meaning(growth: float) -> str:
    """Of the growth between the largest sizes: between small ones blocks fill up, and libraries decide."""
    if growth <= NOTHING:
        return "does not depend on the corpus"
    return "digests or numbers" if growth <= A_PASSAGE else "**more than promised**"


def read_results(folder: Path) -> list[Row]:
    path = folder / RESULTS
    rows: list[Row] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
    return rows


def write_results(folder: Path, rows: list[Row]) -> None:
    unfinished = folder / f".{RESULTS}"
    unfinished.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    unfinished.rename(folder / RESULTS)


if __name__ == "__main__":
    sys.exit(main())
