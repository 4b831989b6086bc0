"""In which precision a release's vectors are made: what is fastest here among what ranks as well.

Passages: the precision that `index` makes theirs in. Queries: int8 by ONNX Runtime where the release's own dev queries
are ranked about as well by it as in fp32, and where it is faster. In every other case fp32, with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from stillhouse.acceleration.precision import computed_in
from stillhouse.corpus.store import Corpus
from stillhouse.errors import InputError
from stillhouse.retrieval.index.vector_index import VectorIndex, cut
from stillhouse.retrieval.models.query_encoder import PlainBert
from stillhouse.serving.batch_encoder import BatchEncoder

if TYPE_CHECKING:
    from stillhouse.serving.int8_queries import Int8Bert

PRECISIONS = ("auto", "fp32", "int8")
LOSS = 0.005
"""The share of fp32's nDCG@10 of dev queries that int8 may lose."""
MOST_QUERIES, DEPTH = 200, 10
TIMED = 8
"""Queries, one after the other, whose encoding is timed."""
NEEDED = ("onnxruntime", "onnx")


@dataclass(frozen=True)
class DevFigures:
    """nDCG@10 of a release's dev queries by its index, and the least milliseconds that one takes to encode."""

    queries: int
    ndcg10_fp32: float
    ndcg10_int8: float
    milliseconds_fp32: float
    milliseconds_int8: float


@dataclass(frozen=True)
class Chosen:
    """The precision of queries' and of passages' vectors, what computes queries, and why."""

    queries: str
    passages: str
    backend: str
    why: str
    dev: DevFigures | None = None

    def about(self) -> dict[str, Any]:
        """What `/info` says of it."""
        return asdict(self)

    def __str__(self) -> str:
        return f"queries in {self.queries} by {self.backend} ({self.why}), passages in {self.passages}"


def passage_type(asked: str, device: torch.device) -> torch.dtype:
    """The type of passages' linear layers under a setting: fp32 where that is asked for."""
    return computed_in("fp32" if asked == "fp32" else "auto", device)


def choose(
    asked: str, plain: PlainBert | None, packed: BatchEncoder, index: VectorIndex, corpus: Corpus, normalize: bool
) -> tuple[BatchEncoder, Chosen]:
    """The encoder of queries, and what it is. `plain` is the model where it is a BERT read without transformers.

    `asked` is one of `PRECISIONS`: with `int8` dev queries are not asked. Raises `InputError` where `int8` cannot be
    had, and for dev queries that are damaged.
    """
    dtype = passage_type(asked, plain.device if plain else torch.device("cpu"))
    passages = "bf16" if plain and dtype == torch.bfloat16 else "fp32"
    exact = Chosen("fp32", passages, f"PyTorch {torch.__version__}", "as asked for")
    if asked == "fp32":
        return packed, exact
    reason = _missing(plain)
    if reason and asked == "int8":
        raise InputError(f"--precision int8 cannot be had: {reason}; leave it out")
    if reason or plain is None:
        return packed, replace(exact, why=reason)
    dev = dev_queries(corpus) if asked == "auto" else None
    if asked == "auto" and dev is None:
        return packed, replace(
            exact, why="the corpus has no dev queries to measure int8 by; --precision int8 trusts it"
        )
    import onnxruntime

    from stillhouse.serving.int8_queries import Int8Bert

    small = Int8Bert(plain)
    eight = Chosen("int8", passages, f"ONNX Runtime {onnxruntime.__version__}", "as asked for")
    if dev is None:
        return small, eight
    figures = compared(packed, small, dev, index, normalize)
    short = f"nDCG@10 {figures.ndcg10_int8:.4f} of {figures.queries} dev queries, in fp32 {figures.ndcg10_fp32:.4f}"
    if figures.ndcg10_int8 < (1 - LOSS) * figures.ndcg10_fp32:
        return packed, replace(exact, why=f"int8 ranks worse: {short}", dev=figures)
    clock = f"{figures.milliseconds_int8:.1f} ms a query, in fp32 {figures.milliseconds_fp32:.1f}"
    if figures.milliseconds_int8 >= figures.milliseconds_fp32:
        return packed, replace(exact, why=f"int8 is no faster here: {clock}", dev=figures)
    return small, replace(eight, why=f"{short}; {clock}", dev=figures)


def _missing(plain: PlainBert | None) -> str:
    """Why int8 cannot be had here; empty where it can."""
    if plain is None:
        return "the model is none of the BERTs that are computed in int8"
    if plain.device.type != "cpu":
        return "a GPU computes in fp32"
    missing = [name for name in NEEDED if find_spec(name) is None]
    return f"{missing[0]} is not installed: pip install 'stillhouse[serve]'" if missing else ""


@dataclass(frozen=True)
class DevQueries:
    """The texts of dev queries that have a relevant passage, and their qrels: `query_id`, `passage_id` (the row)."""

    ids: Sequence[str]
    texts: Sequence[str]
    qrels: Any


def dev_queries(corpus: Corpus) -> DevQueries | None:
    """At most `MOST_QUERIES` of them, drawn from a fixed seed; None for a corpus without any."""
    qrels = corpus.relevant("dev")
    queries = corpus.queries_of("dev")
    queries = queries[queries["query_id"].isin(set(qrels["query_id"]))]
    if not len(queries):
        return None
    chosen = np.sort(np.random.default_rng(0).permutation(len(queries))[:MOST_QUERIES])
    queries = queries.iloc[chosen]
    qrels = qrels[qrels["query_id"].isin(set(queries["query_id"]))].reset_index(drop=True)
    qrels["passage_id"] = corpus.rows_of(qrels["passage_id"])
    return DevQueries(list(queries["query_id"]), list(queries["text"]), qrels)


def compared(exact: BatchEncoder, small: Int8Bert, dev: DevQueries, index: VectorIndex, normalize: bool) -> DevFigures:
    """Both encoders' rankings of the dev queries, and their time."""
    ids = exact.tokenize(dev.texts)
    found = []
    for encoder in (exact, small):
        vectors_QD = cut(encoder.vectors(ids), index.width, normalize)
        found.append((ndcg10(dev, index.search(vectors_QD, DEPTH)[0]), least_milliseconds(encoder.vectors, ids)))
    (ndcg_exact, ms_exact), (ndcg_small, ms_small) = found
    return DevFigures(len(dev.ids), ndcg_exact, ndcg_small, ms_exact, ms_small)


def ndcg10(dev: DevQueries, rows_QK: NDArray[np.int32]) -> float:
    """The mean of nDCG@10 of rankings, passage rows int32 [Q, K] padded with -1."""
    import ir_measures

    from stillhouse.evaluation.measures import per_query_of_rows

    measure = ir_measures.parse_measure("nDCG@10")
    return float(per_query_of_rows(dev.qrels, np.array(dev.ids, dtype=object), rows_QK, [measure])[str(measure)].mean())


def least_milliseconds(vectors: Callable[[Sequence[list[int]]], object], ids: Sequence[list[int]]) -> float:
    """Milliseconds of the fastest of some queries alone, so that what else the machine does counts little."""
    taken = []
    for each in [*ids[:1], *ids[:TIMED]]:  # the first twice, as it does what is done once
        began = time.perf_counter()
        vectors([each])
        taken.append(time.perf_counter() - began)
    return 1000 * min(taken[1:])
