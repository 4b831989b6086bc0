"""`stillhouse serve` beside sentence-transformers and faiss behind FastAPI, and faiss alone. Writes serving.md.

    python -m benchmarks serving --folder build/serving [--seconds 3] [--passages 10000 100000 1000000]
        [--stores postgresql://HOST/DATABASE lancedb:build/store]

Each service and its clients are processes of their own and share the machine's cores. Measured cases are kept in
serving.measured.json. A later call measures the missing ones, and those from another machine or other versions.
`--build` only makes the releases, which takes far longer than measuring.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.command import command
from benchmarks.machine import machine
from benchmarks.page import kept_beside, read_kept, write_kept, write_page
from benchmarks.serving_page import page_lines
from benchmarks.sized_releases import asked, release_folders, texts_of
from stillhouse.core.context import Context
from stillhouse.models.query_encoder import open_query_encoder

KINDS = ("flat", "hnsw", "ivfsq8", "sq8", "binary_rescored")
SYSTEMS = ("stillhouse", "sentence-transformers", "faiss")
CLIENTS = (1, 8, 64)
PEER_PACKAGE = "sentence_transformers"
EMBEDDED_TEXTS = 32
READY_WITHIN = 300.0


def main(argv: list[str] | None = None) -> int:
    parser = command("serving", __doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where releases go; kept from run to run")
    parser.add_argument("--passages", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--systems", nargs="*", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument(
        "--stores", nargs="*", default=[], metavar="URL", help="vector stores to publish a flat release to"
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="of load at each number of clients")
    parser.add_argument("--build", action="store_true", help="make the releases and measure nothing")
    arguments = parser.parse_args(argv)
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if not find_spec(PEER_PACKAGE):
        print(f"skipped: sentence-transformers, as {PEER_PACKAGE} is not installed")
        arguments.systems = [name for name in arguments.systems if name != "sentence-transformers"]
    kept = kept_beside(arguments.page)
    found = {"cases": {}} | read_kept(kept)
    here = machine("faiss-cpu", "torch", "fastapi", "uvicorn")
    found["cases"] = {name: case for name, case in found["cases"].items() if case.get("machine") == here}
    found["machine"] = here

    def add(name: str, measure: Callable[..., dict[str, Any]], *given: Any) -> None:
        if name not in found["cases"]:
            found["cases"][name] = {"load": os.getloadavg()[0], "machine": here} | measure(*given)
            write_kept(kept, found)
            print(name, json.dumps(found["cases"][name]), flush=True)

    for passages in arguments.passages:
        for kind in KINDS:
            release_folders(folder, passages, kind)
            for system in () if arguments.build else arguments.systems:
                add(f"{system}/{kind}/{passages}", measured, system, folder, passages, kind, arguments)
        for address in () if arguments.build else arguments.stores:
            release_folders(folder, passages, "flat")
            store = address.partition(":")[0]
            add(f"{store}/its own/{passages}", in_store, address, folder / f"flat-{passages}", arguments)
    for system in () if arguments.build else arguments.systems:
        if system != "faiss":
            release = folder / f"{KINDS[0]}-{arguments.passages[0]}"
            add(f"{system}/embed", embedding, system, release, arguments)
    if not arguments.build:
        found["seconds"] = arguments.seconds
        write_kept(kept, found)
        write_page(arguments.page, page_lines(found))
    return 0


def measured(system: str, folder: Path, passages: int, kind: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """One case: load at each number of clients, start and memory."""
    release = folder / f"{kind}-{passages}"
    index = json.loads((release / "index" / "index.json").read_text(encoding="utf-8"))
    about = {"index_mb": index["bytes"] / 1e6, "recall@10": index.get("recall@10", 1.0)}
    if system == "faiss":
        words = [sys.executable, "-m", "benchmarks.serving_faiss", str(folder), str(release), str(arguments.seconds)]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
        return about | json.loads(done.stdout.splitlines()[-1])
    return about | under_load(system, release, arguments)


def in_store(address: str, release: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Publishes a release to a store, and puts load on a service that searches there."""
    place = address if "#" in address else f"{address}#{release.name.replace('-', '_')}"
    words = [sys.executable, "-m", "benchmarks.serving_store", str(release), place]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1]) | under_load("stillhouse", release, arguments, "--store", place)


def under_load(system: str, release: Path, arguments: argparse.Namespace, *words: str) -> dict[str, Any]:
    bodies = [{"query": text, "top": 10} for text in asked(1000)]
    with running(system, release, *words) as (port, found, process):
        first = time.perf_counter()
        post(port, "/search", bodies[-1])
        found["first_answer"] = found["ready"] + time.perf_counter() - first
        found["cpu_first_answer"] = cpu_seconds(process.pid)
        for clients in CLIENTS:
            found[f"clients {clients}"] = loaded_and_clocked(
                port, clients, arguments.seconds, "/search", bodies, process
            )
        found["memory"] = memory_of(process.pid)
    return found


def embedding(system: str, release: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    """Vectors of passages, some a request, from a few clients; and how alike the vectors are to the library's own."""
    texts = texts_of(2000)
    parts = [texts[begin : begin + EMBEDDED_TEXTS] for begin in range(0, len(texts), EMBEDDED_TEXTS)]
    extra = {"prompt_name": "passage"} if system == "stillhouse" else {}
    bodies = [{"inputs": part, **extra} for part in parts]
    encoder = open_query_encoder(release / "retriever", Context(release, "cpu", quiet=True))
    own = encoder.vectors(encoder.tokenize(parts[0]))
    with running(system, release) as (port, found, process):
        made = np.array(post(port, "/embed", bodies[0]), dtype=np.float32)
        found["least_cosine"] = float((made * own).sum(axis=1).min())
        for clients in (1, 8):
            seconds = 3 * arguments.seconds
            found[f"clients {clients}"] = loaded_and_clocked(port, clients, seconds, "/embed", bodies, process)
        found["memory"] = memory_of(process.pid)
    return found | {"texts": EMBEDDED_TEXTS}


@contextmanager
def running(system: str, release: Path, *more: str) -> Iterator[tuple[int, dict[str, Any], subprocess.Popen[bytes]]]:
    """A service in a process of its own: its port, the seconds until it was ready, the process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    if system == "stillhouse":
        words = ["-m", "stillhouse.cli", "serve", str(release), "--port", str(port), "--watch", "60", *more]
    else:
        words = ["-m", "benchmarks.serving_peer", str(release), str(port)]
    began = time.perf_counter()
    given = [sys.executable, *words]
    process = subprocess.Popen(given, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not is_ready(port):
            if process.poll() is not None or time.perf_counter() - began > READY_WITHIN:
                raise RuntimeError(f"{system} did not start on {release}; run: {' '.join(words)}")
            time.sleep(0.02)
        yield port, {"ready": time.perf_counter() - began}, process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def post(port: int, path: str, body: Any) -> Any:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.read())


def loaded_and_clocked(
    port: int, clients: int, seconds: float, path: str, bodies: list[Any], process: subprocess.Popen[bytes]
) -> dict[str, Any]:
    """What clients saw, with the milliseconds of a core that the service took for a request (`cpu_ms`)."""
    words = [sys.executable, "-m", "benchmarks.serving_load", str(port), str(clients), str(seconds), path]
    lines, before = "\n".join(map(json.dumps, bodies)), cpu_seconds(process.pid)
    done = subprocess.run(words, input=lines, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout)
    return found | {"cpu_ms": 1000 * (cpu_seconds(process.pid) - before) / max(1, found["requests"])}


def cpu_seconds(process: int) -> float:
    """The seconds that a process has had a core, which others that want it do not lengthen by their own."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(process: int) -> dict[str, float]:
    """MiB by the kernel's count: `Rss`, `Pss`, and `Anonymous`, which no mapped file can give back."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf-8").splitlines()[1:]
    sizes = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines}
    return {name.lower(): sizes[name] for name in ("Rss", "Pss", "Anonymous")}
