"""The search index: all passage vectors in corpus order, searched exactly or approximately by inner product.

Shapes: N passages, Q queries, K depth, D width.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import torch
from numpy.typing import NDArray

from stillhouse.core.arrays import chunks
from stillhouse.core.artifacts import write_json
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.passage_ids import PassageIds
from stillhouse.evaluation.rankings import order_by_score
from stillhouse.search.embeddings import Embeddings
from stillhouse.search.exact_search import BLOCK, Block, blocks_of, exact_search, gpu_search, on_gpu
from stillhouse.search.index_kinds import build, open_flat, write_built, write_flat
from stillhouse.search.settings import IndexConfig

FILE, IDS, ABOUT = "index.faiss", "ids.parquet", "index.json"
DEPTHS = (10, 100)
"""The depths at which the recall of an approximate index is measured."""
GPU, GPU_DEPTH = "cuda", 2048
"""The device of `gpu_search`, and the greatest depth of faiss on a GPU."""
PAIRS_AT_ONCE = 65_536
RESCORED_AT_ONCE = 1 << 22
"""Candidates of all queries that faiss holds at once, with 12 bytes each."""


@dataclass(frozen=True)
class CutVectors:
    """A corpus's embeddings as stored in an index: the first `width` dimensions, normalized again with `normalize`."""

    embeddings: Embeddings
    width: int
    normalize: bool

    def __len__(self) -> int:
        return len(self.embeddings)

    def rows(self, rows: NDArray[np.integer]) -> NDArray[np.float32]:
        """The vectors of some passages, float32 [len(rows), D]."""
        return cut(self.embeddings.rows(rows), self.width, self.normalize)

    def blocks(self) -> Iterator[Block]:
        """All vectors in corpus order."""
        for start in range(0, len(self), BLOCK):
            yield start, self.rows(np.arange(start, min(start + BLOCK, len(self))))


def cut(vectors_ND: NDArray[np.float32], width: int, normalize: bool) -> NDArray[np.float32]:
    """The first `width` dimensions of vectors, normalized again with `normalize`; whole vectors stay unchanged.

    Raises `InputError` if the vectors have fewer dimensions.
    """
    if width > vectors_ND.shape[1]:
        raise InputError(f"the model's vectors have {vectors_ND.shape[1]} dimensions; width cannot be {width}")
    if width == vectors_ND.shape[1]:
        return vectors_ND
    vectors_ND = vectors_ND[:, :width]
    if not normalize:
        return np.ascontiguousarray(vectors_ND)
    lengths_N1 = np.sqrt(np.square(vectors_ND).sum(axis=1, keepdims=True))
    return vectors_ND / np.maximum(lengths_N1, np.float32(1e-12))


@doing("building the index")
def write_index(
    folder: Path, config: IndexConfig, vectors: CutVectors, passage_ids: PassageIds, model_width: int
) -> None:
    """Write `index.faiss`, `ids.parquet` and `index.json`. Vector i belongs to passage_ids[i]."""
    passages, width = len(vectors), vectors.width
    if config.kind == "flat":
        write_flat(folder / FILE, passages, width, vectors.blocks())
    else:
        write_built(folder / FILE, build(config, passages, width, vectors.rows))
    passage_ids.write(folder / IDS)
    about = {"kind": config.kind, "passages": passages, "width": width, "model_width": model_width}
    write_json(folder / ABOUT, about | {"bytes": (folder / FILE).stat().st_size})


class VectorIndex:
    """An index folder, opened for search. The vectors stay on disk in a memory-mapped file."""

    def __init__(self, folder: Path) -> None:
        if not (folder / ABOUT).is_file():
            raise InputError(f"{folder} has no {ABOUT}: it is not an index or an old one; run `stillhouse index` again")
        self._path = folder / FILE
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        self.kind, self.width, self.model_width = str(about["kind"]), int(about["width"]), int(about["model_width"])
        self._about = about
        self.passage_ids = PassageIds(folder / IDS)
        if about["passages"] != len(self.passage_ids):
            raise InputError(f"{folder} has {about['passages']} vectors but {len(self.passage_ids)} ids; index again")
        if self.kind == "flat":
            self._vectors_ND = open_flat(self._path, len(self), self.width)

    def __len__(self) -> int:
        return len(self.passage_ids)

    def recall(self, depth: int) -> float:
        """The measured share of exact search's best `depth` passages that the index finds; `depth` is in `DEPTHS`."""
        return 1.0 if self.kind == "flat" else float(self._about[f"recall@{depth}"])

    @cached_property
    def _index(self) -> Any:
        try:
            # Memory-mapped, so the start reads nothing and the system can reclaim the memory.
            index = faiss.read_index(str(self._path), faiss.IO_FLAG_MMAP_IFC)
            whole = (index.ntotal, index.d) == (len(self), self.width)
        except RuntimeError:
            whole = False
        if not whole:
            raise InputError(
                f"{self._path} is not an index of {len(self)} vectors of width {self.width}; run `stillhouse index`"
            )
        return index

    @property
    def _rescored(self) -> bool:
        """Whether the index also has int8 vectors that rank the best passages again."""
        return isinstance(self._index, faiss.IndexRefine)

    @cached_property
    def _on_gpu(self) -> Any:
        return faiss.index_cpu_to_all_gpus(self._index)

    @cached_property
    def _vectors_on_gpu(self) -> torch.Tensor | NDArray[np.float32]:
        return on_gpu(self._vectors_ND, torch.device(GPU))

    def refused_by_gpu(self, depth: int) -> str:
        """Why a GPU cannot search this index at this depth; empty if it can, as with every flat index.

        For other kinds faiss itself is asked, because the kinds that it supports on a GPU vary by version.
        """
        if self.kind == "flat":
            return ""
        if not hasattr(faiss, "StandardGpuResources"):
            return "faiss-gpu is not installed"
        if min(depth, len(self)) > GPU_DEPTH:
            return f"on a GPU it searches to depth {GPU_DEPTH} at most"
        try:
            self._on_gpu  # noqa: B018  (raises what faiss refuses)
        except RuntimeError as error:
            return str(error).strip().splitlines()[0]
        return ""

    def blocks(self) -> Iterator[Block]:
        """The vectors of a flat index, in blocks."""
        for start in range(0, len(self), BLOCK):
            yield start, self._vectors_ND[start : start + BLOCK]

    def mapped(self) -> NDArray[np.float32]:
        """The memory-mapped vectors [N, D] of a flat index."""
        assert self.kind == "flat", self.kind
        return self._vectors_ND

    @doing("searching the index")
    def search(
        self, queries_QD: NDArray[np.float32], depth: int, gpu: bool = False
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Rows int32 [Q, K] and inner products float32 [Q, K], best first, ties in corpus order.

        K is `depth`, or the number of passages if that is smaller. The inner products of an approximate index are
        approximate, except with `hnsw`. It may find fewer than K passages; rows are then padded with -1. With `gpu`, a
        flat index is searched by `gpu_search` and any other by faiss, which breaks ties at the last rank by its own
        rule.
        """
        depth = min(depth, len(self))
        if not len(queries_QD) or not depth:
            return np.empty((len(queries_QD), depth), np.int32), np.empty((len(queries_QD), depth), np.float32)
        queries_QD = np.ascontiguousarray(queries_QD, dtype=np.float32)
        if self.kind == "flat":
            if not gpu:
                return exact_search(queries_QD, self.blocks(), depth)
            device = torch.device(GPU)
            return gpu_search(queries_QD, blocks_of(self._vectors_on_gpu, device), depth, device)
        options, at_once = {}, len(queries_QD)
        if self.kind == "hnsw":
            options["params"] = faiss.SearchParametersHNSW(efSearch=max(depth, self._index.hnsw.efSearch))  # type: ignore[attr-defined]
        if self._rescored:  # faiss cannot rescore more than all passages
            factor = min(self._index.k_factor, len(self) / depth)
            options["params"] = faiss.IndexRefineSearchParameters(k_factor=factor)  # type: ignore[call-arg]
            at_once = max(1, int(RESCORED_AT_ONCE / (depth * factor)))
        index = self._on_gpu if gpu else self._index
        found = [index.search(queries_QD[part], depth, **options) for part in chunks(len(queries_QD), at_once)]
        scores_QK, rows_QK = order_by_score(*map(np.concatenate, zip(*found)))
        return rows_QK, scores_QK

    def exhaustive(self, selector: Any) -> tuple[Any, Any]:
        """The faiss index of all vectors as an approximate index stores them, and options for comparing each selected
        one with a query."""
        if isinstance(self._index, faiss.IndexIVF):
            return self._index, faiss.SearchParametersIVF(sel=selector, nprobe=self._index.nlist)  # type: ignore[call-arg]
        part = "refine_index" if self._rescored else "storage" if self.kind == "hnsw" else ""
        index = faiss.downcast_index(getattr(self._index, part)) if part else self._index
        return index, faiss.SearchParameters(sel=selector)  # type: ignore[call-arg]

    def vectors(self, rows_P: NDArray[np.int32]) -> NDArray[np.float32]:
        """The vectors of these passages in the index, float32 [P, D]; approximate if the index is."""
        if not len(rows_P):
            return np.empty((0, self.width), np.float32)
        if self.kind == "flat":
            return np.asarray(self._vectors_ND[rows_P], dtype=np.float32)
        if isinstance(self._index, faiss.IndexIVF):
            self._index.make_direct_map()
        return np.asarray(self._index.reconstruct_batch(np.asarray(rows_P, dtype=np.int64)), dtype=np.float32)

    def products(
        self, vectors_QD: NDArray[np.float32], query_P: NDArray[np.integer], row_P: NDArray[np.integer]
    ) -> NDArray[np.float32]:
        """Inner products of queries' vectors with vectors of the index, float32 [P], as the search computes them."""
        parts = [
            np.einsum("pd,pd->p", vectors_QD[query_P[part]], self.vectors(np.asarray(row_P[part], dtype=np.int32)))
            for part in chunks(len(row_P), PAIRS_AT_ONCE)
        ]
        return np.concatenate([np.empty(0, np.float32), *parts])


@dataclass(frozen=True)
class Measured:
    """How much of exact search an approximate index finds.

    recall@k is the share of a query's k best passages that are among the k that the index finds, averaged over
    `queries`, which `source` names; it is 1 for exact search.
    """

    recall: dict[str, float]
    queries: int
    source: str

    def __str__(self) -> str:
        recall = ", ".join(f"{name} {value:.3f}" for name, value in self.recall.items())
        return f"{recall} on {self.queries} {self.source}"


@doing("measuring the index")
def measure(folder: Path, vectors: CutVectors, queries: tuple[NDArray[np.float32], str]) -> Measured:
    """Measure an index against exact search over its vectors, and add the recall to its `index.json`.

    `queries` are vectors [Q, D] and a name for what they are.
    """
    index = VectorIndex(folder)
    queries_QD, source = queries
    exact_QK, _ = exact_search(queries_QD, vectors.blocks(), min(max(DEPTHS), len(index)))
    recall = {}
    for depth in DEPTHS:
        k = min(depth, len(index))
        found_QK, _ = index.search(queries_QD, k)  # some kinds rescore more of a deeper search
        common = [np.isin(exact, found).sum() for exact, found in zip(exact_QK[:, :k], found_QK)]
        recall[f"recall@{depth}"] = float(np.sum(common) / (k * len(queries_QD)))
    about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
    write_json(folder / ABOUT, about | recall | {"measured_on": len(queries_QD), "measured_with": source})
    return Measured(recall, len(queries_QD), source)
