"""Exact search of vectors in a GPU's memory, by PyTorch and by faiss-gpu: the part `search` of `gpu`.

Vectors are random, of length 1, and made on the device. Both compute in fp32. For some queries the scores are computed
again in float64 to check that the best passages were found. `--device cpu` tries the script without a GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence

import faiss
import numpy as np
import torch
from torch import Tensor

from benchmarks.clock import Clock, matrix_peak
from benchmarks.command import command
from benchmarks.machine import machine
from benchmarks.page import from_template, write_page
from stillhouse.search.exact_search import blocks_of, full_precision, gpu_search

AT_ONCE = 100_000
TARGET = 5.0
"""Seconds for 7,000 queries over 8.8 million passages of width 768 to depth 1,000."""
CHECKED = 5
"""Queries whose ranking is computed again in float64."""
ROUNDING = 1e-5
Search = Callable[[Tensor, Tensor, int], np.ndarray]


def main(argv: Sequence[str] | None = None) -> int:
    parser = command("gpu_search", __doc__)
    parser.add_argument("--passages", type=int, default=8_800_000)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--queries", type=int, default=7000)
    parser.add_argument("--depth", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3, help="searches of each side, in turns")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    arguments = parser.parse_args(argv)
    lines = list(report(arguments, torch.device(arguments.device)))
    write_page(arguments.page, lines)
    return 0


def report(arguments: argparse.Namespace, device: torch.device) -> Iterator[str]:
    clock = Clock(device)
    vectors_ND, queries_QD = (
        sample(count, arguments.width, device) for count in (arguments.passages, arguments.queries)
    )
    searches: dict[str, Search] = {"PyTorch, `gpu_search`": by_torch}
    if device.type == "cuda" and hasattr(faiss, "StandardGpuResources"):
        searches["faiss-gpu, `knn_gpu`"] = by_faiss
    seconds: dict[str, list[float]] = {name: [] for name in searches}
    for number in range(arguments.rounds + 1):  # the first is not counted
        for name, search in searches.items():
            begun = clock()
            rows_QK = search(queries_QD, vectors_ND, arguments.depth)
            if number:
                seconds[name].append(clock() - begun)
            else:
                check(rows_QK, queries_QD, vectors_ND)
    with full_precision(device):
        peak = matrix_peak(torch.float32, clock)
    arithmetic = 2 * arguments.passages * arguments.width * arguments.queries
    yield "# Exact search in the memory of a GPU"
    yield ""
    yield "Command: `python -m benchmarks gpu --folder build/gpu --only search`."
    yield ""
    yield machine("torch", "numpy")
    yield ""
    yield from from_template("gpu_search", arguments=arguments, peak=peak / 1e12, target=TARGET)
    yield ""
    yield "| search | seconds | share |"
    yield "|---|---|---|"
    for name, taken in seconds.items():
        middle = float(np.median(taken))
        share = arithmetic / middle / peak
        yield f"| {name} | {middle:.3f} ({min(taken):.3f} to {max(taken):.3f}) | {share:.0%} |"


def sample(count: int, width: int, device: torch.device) -> Tensor:
    """Random vectors of length 1, float32 [count, D]."""
    vectors = torch.empty(count, width, device=device)
    for part in vectors.split(AT_ONCE):
        part.normal_()
        part /= part.norm(dim=1, keepdim=True)
    return vectors


def by_torch(queries_QD: Tensor, vectors_ND: Tensor, depth: int) -> np.ndarray:
    blocks = blocks_of(vectors_ND, vectors_ND.device)
    return gpu_search(queries_QD.cpu().numpy(), blocks, depth, vectors_ND.device)[0]


def by_faiss(queries_QD: Tensor, vectors_ND: Tensor, depth: int) -> np.ndarray:
    import faiss.contrib.torch_utils

    place = faiss.StandardGpuResources()  # type: ignore[attr-defined]
    _, rows_QK = faiss.knn_gpu(place, queries_QD, vectors_ND, depth, metric=faiss.METRIC_INNER_PRODUCT)  # type: ignore[attr-defined]
    rows: np.ndarray = rows_QK.cpu().numpy()
    return rows


def check(rows_QK: np.ndarray, queries_QD: Tensor, vectors_ND: Tensor) -> None:
    """Checks that some queries' passages are the best by products in float64, up to fp32's rounding."""
    some = queries_QD[:CHECKED].double()
    scores = torch.cat([some @ part.double().T for part in vectors_ND.split(AT_ONCE)], dim=1)
    best = scores.topk(rows_QK.shape[1], dim=1).values
    found = scores.gather(1, torch.from_numpy(rows_QK[:CHECKED].astype(np.int64)).to(scores.device))
    assert all(len(set(rows)) == len(rows) for rows in rows_QK[:CHECKED].tolist()), "a passage stands twice"
    assert bool((found.sort(dim=1, descending=True).values >= best - ROUNDING).all()), "a better passage was not found"
