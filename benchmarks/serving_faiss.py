"""faiss alone, in process: one question after another, and 64 at once, with precomputed vectors.

python -m benchmarks.serving_faiss FOLDER RELEASE SECONDS
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import faiss
import numpy as np

from benchmarks.machine import memory_mib
from benchmarks.serving_load import quantile


def main(folder: Path, release: Path, seconds: float) -> dict[str, object]:
    vectors = np.load(folder / "centres.npy")
    began = time.perf_counter()
    index = faiss.read_index(str(release / "index" / "index.faiss"))
    ready = time.perf_counter() - began
    found: dict[str, object] = {"ready": ready}
    for size in (1, 8, 64):
        latencies: list[float] = []
        first = 0
        ends = time.perf_counter() + seconds
        while (started := time.perf_counter()) < ends:
            index.search(vectors[np.arange(first, first + size) % len(vectors)], 10)
            latencies.append(1000 * (time.perf_counter() - started))
            first += size
        per_second = 1000 * size * len(latencies) / sum(latencies)
        latencies.sort()
        p50, p99 = quantile(latencies, 0.5), quantile(latencies, 0.99)
        found[f"clients {size}"] = {"per_second": per_second, "p50": p50, "p99": p99, "requests": len(latencies)}
    return found | {"memory": {"rss": memory_mib("VmRSS"), "anonymous": memory_mib("RssAnon")}}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))))
