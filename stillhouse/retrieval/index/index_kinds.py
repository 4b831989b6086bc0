"""The kinds of index and how each is built: all by inner product, all files that any faiss reads.

Built on one thread with faiss's fixed seeds: the same vectors give the same bytes. Shapes: N passages, D width.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from stillhouse.errors import InputError
from stillhouse.retrieval.index.exact_search import BLOCK, Block
from stillhouse.retrieval.settings import IndexConfig

PQ_CENTROIDS = 256
POINTS_OF_A_CLUSTER = 39
"""Below this many passages a cluster faiss warns that the clusters are badly fitted."""
TRAINED_ON = 64
"""Passages a cluster that clusters are fitted to: the time of an ivfpq index at a million passages."""
CLUSTERED = ("ivfpq", "ivfsq8")
"""Kinds that keep passages in clusters, of which a query looks into the nearest."""

Rows = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""The vectors of some passages."""


def build(config: IndexConfig, passages: int, width: int, rows: Rows) -> Any:
    """An index of another kind than flat, holding every passage.

    `rows` gives the vectors, already cut to `width`. Raises `InputError` where there are too few passages, or the
    settings do not fit the width.
    """
    index = EMPTY[config.kind](config, passages, width)
    with one_thread():
        if not index.is_trained:
            index.train(rows(training_sample(config, passages)))
        for start in range(0, passages, BLOCK):
            index.add(rows(np.arange(start, min(start + BLOCK, passages))))
    return index


@contextmanager
def one_thread() -> Iterator[None]:
    """Keeps faiss to one thread, whose sums have one order."""
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)


def training_sample(config: IndexConfig, passages: int) -> NDArray[np.int64]:
    """Rows to fit clusters or scales to: all, or a seeded sample, in corpus order."""
    wanted = max(1 << 16, TRAINED_ON * lists(config, passages) if config.kind in CLUSTERED else 0)
    if passages <= wanted:
        return np.arange(passages)
    return np.sort(np.random.default_rng(0).choice(passages, wanted, replace=False))


def hnsw(config: IndexConfig, passages: int, width: int) -> Any:
    index = faiss.IndexHNSWFlat(width, config.hnsw_m, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = config.hnsw_ef_construction
    index.hnsw.efSearch = config.hnsw_ef_search
    return index


def ivfpq(config: IndexConfig, passages: int, width: int) -> Any:
    if passages < PQ_CENTROIDS:
        raise InputError(
            f"an ivfpq index needs at least {PQ_CENTROIDS} passages and the corpus has {passages}; choose kind flat"
        )
    size = config.pq_m or divisor_near(width, width // 4)
    if width % size:
        divisors = [str(number) for number in range(1, width + 1) if width % number == 0]
        raise InputError(f"pq_m {size} does not divide the width {width}; choose one of {', '.join(divisors)}")
    clusters = lists(config, passages)
    index = faiss.IndexIVFPQ(faiss.IndexFlatIP(width), width, clusters, size, 8, faiss.METRIC_INNER_PRODUCT)
    index.nprobe = min(config.ivf_nprobe, clusters)
    return index


def lists(config: IndexConfig, passages: int) -> int:
    """Clusters of an ivfpq or ivfsq8 index: as set, or 4 √N, by as many passages each as faiss wants for a good fit."""
    if config.ivf_nlist and config.ivf_nlist > passages:
        raise InputError(
            f"ivf_nlist is {config.ivf_nlist} and the corpus has {passages} passages; set it lower, or leave it out"
        )
    return config.ivf_nlist or max(1, min(int(4 * passages**0.5), passages // POINTS_OF_A_CLUSTER))


def divisor_near(number: int, wanted: int) -> int:
    """The largest divisor of `number` that is at most `wanted`, and at least 1."""
    return max(divisor for divisor in range(1, max(1, wanted) + 1) if number % divisor == 0)


def sq8(config: IndexConfig, passages: int, width: int) -> Any:
    return faiss.IndexScalarQuantizer(width, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT)


def ivfsq8(config: IndexConfig, passages: int, width: int) -> Any:
    clusters, centres = lists(config, passages), faiss.IndexFlatIP(width)
    eight_bits, metric = faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
    index = faiss.IndexIVFScalarQuantizer(centres, width, clusters, eight_bits, metric)
    index.nprobe = min(config.ivf_nprobe, clusters)
    return index


def binary_rescored(config: IndexConfig, passages: int, width: int) -> Any:
    """The signs of the dimensions, compared by Hamming distance, and int8 vectors that score the best of them again.

    The query is binary in the first comparison and fp32 in the second.
    """
    inner_product = faiss.METRIC_INNER_PRODUCT
    signs = faiss.IndexLSH(width, width, False, False)  # no rotation, no thresholds but 0
    signs.metric_type = inner_product  # of the whole; its own distance is Hamming's, whatever stands here
    eight_bits = faiss.IndexScalarQuantizer(width, faiss.ScalarQuantizer.QT_8bit, inner_product)
    index = faiss.IndexRefine(signs, eight_bits)
    index.k_factor = config.rescore_multiplier
    index.own_fields = index.own_refine_index = True
    parts: list[Any] = [signs, eight_bits]
    for part in parts:
        part.this.disown()
    return index


EMPTY: dict[str, Callable[[IndexConfig, int, int], Any]] = {
    "hnsw": hnsw,
    "ivfpq": ivfpq,
    "ivfsq8": ivfsq8,
    "sq8": sq8,
    "binary_rescored": binary_rescored,
}


def write_built(path: Path, index: Any) -> None:
    """Writes what `build` built. faiss writes to Python's file: of one of its own it does not hear that the last bytes
    found no room on the disk."""
    with path.open("wb") as file:
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))  # type: ignore[attr-defined]


def flat_header(passages: int, width: int) -> bytes:
    """The bytes before the vectors in a file of faiss's IndexFlatIP: its name, sizes, metric, and their number."""
    unused = 1 << 20
    about = struct.pack("<iqqqBi", width, passages, unused, unused, 1, faiss.METRIC_INNER_PRODUCT)
    return b"IxFI" + about + struct.pack("<Q", passages * width)


def write_flat(path: Path, passages: int, width: int, blocks: Iterable[Block]) -> None:
    """Writes a file that faiss reads as IndexFlatIP, a block at a time: `faiss.write_index` wants all in memory."""
    with path.open("wb") as file:
        file.write(flat_header(passages, width))
        for _, vectors_BD in blocks:
            file.write(np.ascontiguousarray(vectors_BD, dtype="<f4").tobytes())


def open_flat(path: Path, passages: int, width: int) -> NDArray[np.float32]:
    """The vectors [N, D] of a flat index, memory-mapped, at addresses that are no multiples of 4.

    They can be written to, as PyTorch wishes, which changes neither the file nor what others read.
    """
    header = flat_header(passages, width)
    with path.open("rb") as file:
        whole = file.read(len(header)) == header and path.stat().st_size == len(header) + 4 * passages * width
    if not whole:
        raise InputError(f"{path} is not a flat index of {passages} vectors of width {width}; run `stillhouse index`")
    if not passages:
        return np.empty((0, width), dtype=np.float32)
    return np.memmap(path, dtype="<f4", mode="c", offset=len(header), shape=(passages, width))
