"""Builds every kind of index: all use the inner product, and every faiss can read their files.

They are built on one thread with faiss's fixed seeds, so the same vectors give the same bytes. Shapes: N passages,
D width.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from stillhouse.core.errors import InputError
from stillhouse.search.exact_search import BLOCK, Block
from stillhouse.search.settings import IndexConfig

PQ_CENTROIDS = 256
POINTS_OF_A_CLUSTER = 39
"""With fewer passages per cluster, faiss warns that the clusters are badly fitted."""
TRAINED_ON = 64
"""Passages per cluster that clusters are fitted on; they dominate the time of an ivfpq index of a million passages."""
CLUSTERED = ("ivfpq", "ivfsq8")
"""Kinds that store passages in clusters; a query searches the nearest ones."""

Rows = Callable[[NDArray[np.int64]], NDArray[np.float32]]
"""Gives the vectors of some passages."""


def build(config: IndexConfig, passages: int, width: int, rows: Rows) -> Any:
    """Build an index of any kind except flat over all passages.

    `rows` gives the vectors, already cut to `width`. Raises `InputError` if there are too few passages, or if the
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
    """Limit faiss to one thread, which fixes the order of its sums."""
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(threads)


def training_sample(config: IndexConfig, passages: int) -> NDArray[np.int64]:
    """Rows to fit clusters or scales on: all, or a seeded sample, in corpus order."""
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
            f"an ivfpq index needs at least {PQ_CENTROIDS} passages, but the corpus has {passages}; choose kind flat"
        )
    divisors = [number for number in range(1, width + 1) if width % number == 0]
    size = config.pq_m or max(divisor for divisor in divisors if divisor <= max(1, width // 4))
    if size not in divisors:
        raise InputError(
            f"pq_m {size} does not divide the width {width}; choose one of {', '.join(map(str, divisors))}"
        )
    clusters = lists(config, passages)
    centres = faiss.IndexFlatIP(width)
    codes: Any = faiss.IndexIVFPQ(centres, width, clusters, size, 8, faiss.METRIC_INNER_PRODUCT)
    codes.nprobe = min(config.ivf_nprobe, clusters)
    codes.own_fields = True
    centres.this.disown()  # type: ignore[attr-defined]
    return rescored(codes, config, width) if config.rescore_multiplier else codes


def lists(config: IndexConfig, passages: int) -> int:
    """Clusters of an ivfpq or ivfsq8 index: as set, or 4 √N but with enough passages each for a good fit."""
    if config.ivf_nlist and config.ivf_nlist > passages:
        raise InputError(
            f"ivf_nlist is {config.ivf_nlist}, but the corpus has {passages} passages; set it lower, or leave it out"
        )
    return config.ivf_nlist or max(1, min(int(4 * passages**0.5), passages // POINTS_OF_A_CLUSTER))


def sq8(config: IndexConfig, passages: int, width: int) -> Any:
    return faiss.IndexScalarQuantizer(width, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT)


def ivfsq8(config: IndexConfig, passages: int, width: int) -> Any:
    clusters, centres = lists(config, passages), faiss.IndexFlatIP(width)
    eight_bits, metric = faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
    index = faiss.IndexIVFScalarQuantizer(centres, width, clusters, eight_bits, metric)
    index.nprobe = min(config.ivf_nprobe, clusters)
    return index


def binary_rescored(config: IndexConfig, passages: int, width: int) -> Any:
    """The signs of the dimensions, compared by Hamming distance. The query is binary in this comparison alone."""
    signs = faiss.IndexLSH(width, width, False, False)  # no rotation, and 0 as the only threshold
    signs.metric_type = faiss.METRIC_INNER_PRODUCT  # for the whole index; the signs always use the Hamming distance
    return rescored(signs, config, width)


def rescored(coarse: Any, config: IndexConfig, width: int) -> Any:
    """An index that finds candidates in `coarse` and ranks the best of them again by int8 vectors.

    A filtered search compares these alone."""
    eight_bits = sq8(config, 0, width)
    index = faiss.IndexRefine(coarse, eight_bits)
    index.k_factor = config.rescore_multiplier
    index.own_fields = index.own_refine_index = True
    for part in (coarse, eight_bits):
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
    """Write what `build` built. faiss writes to a Python file, because with its own files it does not notice that the
    disk was full for the last bytes."""
    with path.open("wb") as file:
        faiss.write_index(index, faiss.PyCallbackIOWriter(file.write))  # type: ignore[attr-defined]


def flat_header(passages: int, width: int) -> bytes:
    """The bytes before the vectors in a file of faiss's IndexFlatIP: name, sizes, metric and the number of values."""
    unused = 1 << 20
    about = struct.pack("<iqqqBi", width, passages, unused, unused, 1, faiss.METRIC_INNER_PRODUCT)
    return b"IxFI" + about + struct.pack("<Q", passages * width)


def write_flat(path: Path, passages: int, width: int, blocks: Iterable[Block]) -> None:
    """Write a file that faiss reads as IndexFlatIP, block by block; `faiss.write_index` needs all vectors in memory."""
    with path.open("wb") as file:
        file.write(flat_header(passages, width))
        for _, vectors_BD in blocks:
            file.write(np.ascontiguousarray(vectors_BD, dtype="<f4").tobytes())


def open_flat(path: Path, passages: int, width: int) -> NDArray[np.float32]:
    """The vectors [N, D] of a flat index, memory-mapped, at addresses that are not multiples of 4.

    They are writable, because PyTorch asks for it; writing changes neither the file nor what others read.
    """
    header = flat_header(passages, width)
    with path.open("rb") as file:
        whole = file.read(len(header)) == header and path.stat().st_size == len(header) + 4 * passages * width
    if not whole:
        raise InputError(f"{path} is not a flat index of {passages} vectors of width {width}; run `stillhouse index`")
    if not passages:
        return np.empty((0, width), dtype=np.float32)
    return np.memmap(path, dtype="<f4", mode="c", offset=len(header), shape=(passages, width))
