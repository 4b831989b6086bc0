"""Search of sampled vectors: exact and approximate, time, memory, recall and size.

    python -m benchmarks search --folder build/search [--passages 1000000] [--threads 1]

Vectors have length 1 and lie in clusters, as embeddings do. Queries are noisy copies of some of them, which are their
relevant passages. Every measurement runs in a process of its own, and the page shows its peak memory. `faiss, in
memory` is exact search with faiss's own IndexFlatIP, with all vectors in memory.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch

from benchmarks.command import command, run_alone
from benchmarks.machine import machine, peak_mib
from benchmarks.page import write_page
from benchmarks.sized_releases import unit
from stillhouse.core.arrays import save_array
from stillhouse.corpus.passage_ids import PassageIds
from stillhouse.search.embeddings import Embeddings, write_segment
from stillhouse.search.settings import IndexConfig
from stillhouse.search.vector_index import CutVectors, VectorIndex, measure, write_index

WIDTH, CLUSTERS, SPREAD, NOISE, SEED = 384, 2000, 0.8, 0.4, 0
PART = 50_000
QUERIES, ALONE = 1000, 50
KINDS = ("flat", "hnsw", "ivfpq", "sq8")
FAISS = "faiss, in memory"


def main(argv: list[str] | None = None) -> int:
    parser = command("search", __doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where vectors and indexes go; kept from run to run")
    parser.add_argument("--passages", type=int, default=1_000_000)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--measure", nargs=2, metavar=("WHAT", "KIND"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    torch.set_num_threads(arguments.threads)
    faiss.omp_set_num_threads(arguments.threads)
    if arguments.measure:
        what, kind = arguments.measure
        print(json.dumps(TASKS[what](kind, arguments)))
        return 0
    sample(arguments.folder, arguments.passages)
    lines = report(arguments)
    write_page(arguments.page, lines)
    return 0


def place(folder: Path, passages: int) -> Path:
    return folder / f"vectors-{passages}"


def digests(passages: int) -> np.ndarray:
    return np.array([b"%016d" % number for number in range(passages)], dtype="S16")


def sample(folder: Path, passages: int) -> None:
    """Writes the vectors in segments, and the queries with the row of each one's relevant passage; once."""
    rng = np.random.default_rng(SEED)
    centres = unit(rng.standard_normal((CLUSTERS, WIDTH), dtype=np.float32))
    relevant = np.sort(rng.choice(passages, QUERIES, replace=False))
    into, names = place(folder, passages), digests(passages)
    chosen = []
    for start in range(0, passages, PART):
        size = min(PART, passages - start)
        noise = unit(rng.standard_normal((size, WIDTH), dtype=np.float32))
        vectors = unit(centres[rng.integers(CLUSTERS, size=size)] + SPREAD * noise)
        write_segment(into, names[start : start + size], vectors)
        chosen.append(vectors[relevant[(relevant >= start) & (relevant < start + size)] - start])
    noise = unit(rng.standard_normal((QUERIES, WIDTH), dtype=np.float32))
    save_array(folder / "queries.npy", unit(np.concatenate(chosen) + NOISE * noise))
    save_array(folder / "relevant.npy", relevant)


def stored(arguments: argparse.Namespace) -> CutVectors:
    names = digests(arguments.passages)
    return CutVectors(Embeddings([place(arguments.folder, arguments.passages)], names, WIDTH), WIDTH, True)


def index_folder(arguments: argparse.Namespace, kind: str) -> Path:
    return arguments.folder / f"{kind}-{arguments.passages}"


def build_one(kind: str, arguments: argparse.Namespace) -> dict[str, Any]:
    vectors, into = stored(arguments), index_folder(arguments, kind)
    into.mkdir(exist_ok=True)
    ids = PassageIds([f"p{row}" for row in range(arguments.passages)])
    started = time.perf_counter()
    write_index(into, IndexConfig(kind=kind), vectors, ids, WIDTH)
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "mib": peak_mib(), "bytes": (into / "index.faiss").stat().st_size}


def recall_of(kind: str, arguments: argparse.Namespace) -> dict[str, Any]:
    queries = np.load(arguments.folder / "queries.npy")
    return measure(index_folder(arguments, kind), stored(arguments), (queries, "sampled queries")).recall


def search_one(kind: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Seconds for all queries at once at depth 100, and milliseconds for one at a time at depth 10."""
    queries = np.load(arguments.folder / "queries.npy")
    if kind == FAISS:
        theirs = faiss.read_index(str(index_folder(arguments, "flat") / "index.faiss"))
        search = theirs.search
    else:
        search = VectorIndex(index_folder(arguments, kind)).search
    search(queries[:2], 10)
    started = time.perf_counter()
    search(queries, 100)
    together = time.perf_counter() - started
    started = time.perf_counter()
    for query in queries[:ALONE]:
        search(query[None], 10)
    alone = 1000 * (time.perf_counter() - started) / min(ALONE, len(queries))
    return {"seconds": together, "milliseconds": alone, "mib": peak_mib()}


TASKS = {"build": build_one, "recall": recall_of, "search": search_one}


def report(arguments: argparse.Namespace) -> list[str]:
    words = f"--passages {arguments.passages} --threads {arguments.threads} --kinds {' '.join(arguments.kinds)}"
    shown = f"Command: `python -m benchmarks search --folder build/search {words}`."
    about = (
        f"{arguments.passages} vectors of width {WIDTH}, {QUERIES} queries; threads: {arguments.threads}. "
        "Indexes are built on one thread. All queries at once to depth 100; one at a time to depth 10."
    )
    lines = ["# Search at size", "", shown, "", machine("faiss-cpu", "torch", "numpy"), "", about, ""]
    lines += ["| index | build, s | build, peak MiB | size, MB | all queries, s | one query, ms | search, peak MiB | "]
    lines[-1] += "recall@10 | recall@100 |"
    lines += ["|---|" + "---|" * 8]
    for kind in arguments.kinds:
        built = in_a_process("build", kind, arguments)
        found = in_a_process("search", kind, arguments)
        recall = in_a_process("recall", kind, arguments)
        cells = [f"{built['seconds']:.1f}", f"{built['mib']:.0f}", f"{built['bytes'] / 1e6:.1f}"]
        cells += [f"{found['seconds']:.2f}", f"{found['milliseconds']:.2f}", f"{found['mib']:.0f}"]
        cells += [f"{recall['recall@10']:.3f}", f"{recall['recall@100']:.3f}"]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    if "flat" in arguments.kinds:
        found = in_a_process("search", FAISS, arguments)
        lines.append(
            f"| {FAISS} | | | | {found['seconds']:.2f} | {found['milliseconds']:.2f} | {found['mib']:.0f} | 1 | 1 |"
        )
    return lines


def in_a_process(what: str, kind: str, arguments: argparse.Namespace) -> dict[str, Any]:
    words = ["--folder", arguments.folder, "--passages", arguments.passages, "--threads", arguments.threads]
    return run_alone("search", [*words, "--measure", what, kind])
