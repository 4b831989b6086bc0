"""Ray and Spark as the engine of `ingest` and `tokenize`, on one machine; writes engines.md beside this.

    pip install --target build/ray ray==2.60.0; pip install --target build/spark pyspark==4.3.0
    python benchmarks/engines.py --folder build/engines --ray build/ray --spark build/spark [--sizes 200000 1000000]

Both engines call the same functions of the project in their processes; Spark's adapter is in this file. The source has
MS MARCO's format: passages of random words without queries. Every measurement runs in a process of its own; it and its
children are sampled five times a second. Each corpus is compared byte for byte with the corpus of one process.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ingesting import MODEL, write_source
from machine import machine
from notes import write_page

ENGINES = ("local", "ray:1", "ray:2", "spark:1", "spark:2")
BOTH = ("local", "ray:2", "spark:2")
TOKENIZED = 20_000
"""Passages that are cut into tokens."""
EVERY = 0.2
COMMAND = "python benchmarks/engines.py --folder build/engines --ray build/ray --spark build/spark"
COLUMNS = "work passages engine start,s seconds processor,s driver,MiB worker,MiB engine,MiB same,bytes load,before"


class Spark:
    """Spark's local mode: its resilient distributed datasets call a function for each of some things."""

    def __init__(self, processes: int) -> None:
        os.environ["PYSPARK_PYTHON"] = sys.executable
        from pyspark import SparkConf, SparkContext

        settings = {"spark.ui.enabled": "false", "spark.python.worker.reuse": "true", "spark.driver.memory": "1g"}
        conf = SparkConf().setMaster(f"local[{processes},4]").setAll(list(settings.items()))
        self.context = SparkContext(conf=conf)
        self.context.setLogLevel("ERROR")
        self.name_shown = f"Spark, {processes} processes"

    def each(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
        def alone(item: Any) -> Any:
            os.environ["TOKENIZERS_PARALLELISM"] = "false"
            return function(item)

        items = list(items)
        return iter(self.context.parallelize(items, max(1, len(items))).map(alone).collect())


class Watched(threading.Thread):
    """Peak memory in MiB and seconds of the processor of this process and its children, by what they are."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak: dict[tuple[str, int], float] = {}
        self.processor: dict[tuple[str, int], float] = {}
        self.stop = False

    def run(self) -> None:
        while not self.stop:
            self.look()
            time.sleep(EVERY)

    def look(self) -> None:
        import psutil

        own = psutil.Process()
        for process in [own, *own.children(recursive=True)]:
            try:
                key = ("driver" if process == own else role(process), process.pid)
                memory = process.memory_full_info().uss / 2**20
                spent = process.cpu_times()
            except psutil.Error:
                continue
            self.peak[key] = max(self.peak.get(key, 0.0), memory)
            self.processor[key] = spent.user + spent.system

    def most(self, kind: str) -> float:
        return max((value for (own, _), value in self.peak.items() if own == kind), default=0.0)

    def sum_of(self, kind: str) -> float:
        return sum(value for (own, _), value in self.peak.items() if own == kind)


def role(process: Any) -> str:
    line = " ".join(process.cmdline())
    return "worker" if line.startswith("ray::") or "pyspark.daemon" in line or "pyspark/daemon" in line else "engine"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where sources and corpora go; emptied at the end")
    parser.add_argument("--ray", type=Path, required=True, help="the folder that Ray is installed in")
    parser.add_argument("--spark", type=Path, required=True, help="the folder that Spark is installed in")
    parser.add_argument("--sizes", type=int, nargs="+", default=[200_000, 1_000_000], help="passages of the corpora")
    parser.add_argument("--page", type=Path, default=Path(__file__).with_suffix(".md"), help="the results page")
    parser.add_argument("--measure", nargs=3, metavar=("WORK", "ENGINE", "SIZE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.measure:
        work, engine, size = arguments.measure
        print(json.dumps(measure(work, engine, arguments.folder.resolve() / size)))
        return 0
    known = arguments.folder / "measured.json"
    rows: dict[str, dict[str, float]] = json.loads(known.read_text()) if known.is_file() else {}
    for size in (arguments.sizes[0], TOKENIZED, *arguments.sizes[1:]):
        work = "tokenize" if size == TOKENIZED else "ingest"
        engines = ENGINES if size == arguments.sizes[0] else BOTH if work == "tokenize" else BOTH[:2]
        if all(f"{work} {engine} {size}" in rows for engine in engines):
            continue
        write_source(arguments.folder / str(size), size)
        for engine in engines:
            rows[f"{work} {engine} {size}"] = run_one(work, engine, size, arguments)
            known.write_text(json.dumps(rows))
        shutil.rmtree(arguments.folder / str(size))
    lines = render(rows, arguments)
    print("\n".join(lines))
    write_page(arguments.page, lines)
    return 0


def run_one(work: str, engine: str, size: int, arguments: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, __file__, "--folder", str(arguments.folder), "--measure", work, engine, str(size)]
    command += ["--ray", str(arguments.ray), "--spark", str(arguments.spark)]
    installed = {"ray": arguments.ray, "spark": arguments.spark}.get(engine.partition(":")[0])
    path = [os.environ.get("PYTHONPATH", ""), str(Path.cwd()), *([str(installed.resolve())] if installed else [])]
    environment = os.environ | {"STILLHOUSE_QUIET": "1", "PYTHONPATH": os.pathsep.join(filter(None, path))}
    load = os.getloadavg()[0]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout
    result: dict[str, float] = json.loads(output.splitlines()[-1]) | {"load": load}
    print(f"{work}, {engine}, {size:,}: {result}", file=sys.stderr, flush=True)
    return result


def measure(work: str, name: str, folder: Path) -> dict[str, float]:
    """One run: seconds, processor seconds, peaks in MiB, and whether it wrote what one process wrote."""
    from contextlib import nullcontext

    from stillhouse.corpus.cleaning_parts import Several
    from stillhouse.corpus.ingestion import Choices, ingest_source
    from stillhouse.corpus.sources.detect import open_source
    from stillhouse.corpus.store import Corpus
    from stillhouse.engine.choice import open_engine

    watched = Watched()
    watched.start()
    began = time.perf_counter()
    kind, _, processes = name.partition(":")
    with nullcontext(Spark(int(processes))) if kind == "spark" else open_engine(name) as engine:
        started = time.perf_counter()
        place, target = folder / "work" / name, folder / work / name
        for made in (place, target):
            made.mkdir(parents=True)
        if work == "ingest":
            several = Several(engine.each, place) if engine else None
            choices = Choices(max_queries={}, seed=0, queries="source")
            ingest_source(open_source(str(folder / "alone")), choices, target, several=several)
        else:
            tokenize(engine, folder, place, target, Corpus)
        ended = time.perf_counter()
        watched.look()
    watched.stop = True
    same = all(path.read_bytes() == (folder / work / "local" / path.name).read_bytes() for path in target.iterdir())
    return {
        "start": started - began,
        "seconds": ended - started,
        "processor": sum(watched.processor.values()),
        "driver": watched.most("driver"),
        "worker": watched.most("worker"),
        "engine": watched.sum_of("engine"),
        "same": float(same),
    }


def tokenize(engine: Any, folder: Path, place: Path, target: Path, corpus_class: Any) -> None:
    from stillhouse.corpus.ingestion import Choices, ingest_source
    from stillhouse.corpus.sources.detect import open_source
    from stillhouse.pretraining.token_files import write_tokens
    from stillhouse.pretraining.token_parts import TokenSettings, blocks_of, write_token_parts
    from stillhouse.retrieval.models.model_place import locate
    from stillhouse.retrieval.models.tokenizer_files import load_tokenizer

    corpus, model = folder / "corpus", Path(locate(MODEL))
    if not corpus.is_dir():
        corpus.mkdir()
        choices = Choices(max_queries={}, seed=0, queries="source")
        ingest_source(open_source(str(folder / "alone")), choices, corpus)
    if engine is None:
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        write_tokens(target, blocks_of(corpus_class.open(corpus)), load_tokenizer(model), 144, "en")
        return
    settings = TokenSettings(corpus, model, 144, "en")
    write_token_parts(target, settings, place, engine.each, TOKENIZED // 8)


def render(rows: dict[str, dict[str, float]], arguments: argparse.Namespace) -> list[str]:
    sizes = " ".join(map(str, arguments.sizes))
    lines = ["# An engine for corpora too large for one machine", ""]
    lines += [
        f"Command: `{COMMAND} --sizes {sizes}`.",
        "",
        machine("numpy", "pyarrow"),
        "",
    ]
    for name, folder in (("Ray 2.60.0", arguments.ray), ("Spark 4.3.0", arguments.spark)):
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 2**20
        java = ", and needs Java" if "Spark" in name else ""
        lines.append(f"- {name} takes {size:,.0f} MiB in the image{java}.")
    lines += [
        "",
        f"| {' | '.join(COLUMNS.split()).replace(',', ' ')} |",
        "|---" * len(COLUMNS.split()) + "|",
    ]
    for key, row in rows.items():
        work, engine, size = key.split()
        figures = [f"{row['start']:.1f}", f"{row['seconds']:.1f}", f"{row['processor']:.1f}"]
        figures += [f"{row[name]:.0f}" for name in ("driver", "worker", "engine")]
        figures += ["yes" if row["same"] else "NO", f"{row['load']:.1f}"]
        lines.append(f"| {' | '.join([f'`{work}`', f'{int(size):,}', engine, *figures])} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
