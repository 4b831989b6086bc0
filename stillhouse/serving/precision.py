"""Chooses the precision of a release's vectors: the fastest one here that ranks as well.

Passages use the precision in which `index` encodes them. Queries use int8 with ONNX Runtime if it ranks the release's
own dev queries about as well as fp32 and is faster. Otherwise they use fp32, and the reason is reported.
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
"""The share of fp32's nDCG@10 on dev queries that int8 may lose."""
MOST_QUERIES, DEPTH = 200, 10
TIMED = 8
"""How many queries are timed, one by one."""
NEEDED = ("onnxruntime", "onnx")


@dataclass(frozen=True)
class DevFigures:
    """nDCG@10 of a release's dev queries in its index, and the fewest milliseconds to encode one."""

    queries: int
    ndcg10_fp32: float
    ndcg10_int8: float
    milliseconds_fp32: float
    milliseconds_int8: float


@dataclass(frozen=True)
class Chosen:
    """The precision of query and passage vectors, what computes queries, and why."""

    queries: str
    passages: str
    backend: str
    why: str
    dev: DevFigures | None = None

    def about(self) -> dict[str, Any]:
        """The content of `/info`."""
        return asdict(self)

    def __str__(self) -> str:
        return f"queries in {self.queries} by {self.backend} ({self.why}), passages in {self.passages}"


def passage_type(asked: str, device: torch.device) -> torch.dtype:
    """The dtype of linear layers for passages under a setting: fp32 if that was requested."""
    return computed_in("fp32" if asked == "fp32" else "auto", device)


def choose(
    asked: str, plain: PlainBert | None, packed: BatchEncoder, index: VectorIndex, corpus: Corpus, normalize: bool
) -> tuple[BatchEncoder, Chosen]:
    """The encoder of queries, and a description of it. `plain` is the model if it is a BERT read without transformers.

    `asked` is one of `PRECISIONS`; `int8` skips the check on dev queries. Raises `InputError` if `int8` is impossible,
    and for damaged dev queries.
    """
    dtype = passage_type(asked, plain.device if plain else torch.device("cpu"))
    passages = "bf16" if plain and dtype == torch.bfloat16 else "fp32"
    exact = Chosen("fp32", passages, f"PyTorch {torch.__version__}", "as asked for")
    if asked == "fp32":
        return packed, exact
    reason = _missing(plain)
    if reason and asked == "int8":
        raise InputError(f"--precision int8 is not possible: {reason}; leave it out")
    if reason or plain is None:
        return packed, replace(exact, why=reason)
    dev = dev_queries(corpus) if asked == "auto" else None
    if asked == "auto" and dev is None:
        return packed, replace(
            exact, why="the corpus has no dev queries to check int8 with; --precision int8 skips the check"
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
    """Why int8 is not possible here; empty if it is."""
    if plain is None:
        return "the model is not a BERT that can be computed in int8"
    if plain.device.type != "cpu":
        return "a GPU computes in fp32"
    missing = [name for name in NEEDED if find_spec(name) is None]
    return f"{missing[0]} is not installed: pip install 'stillhouse[serve]'" if missing else ""


@dataclass(frozen=True)
class DevQueries:
    """The texts of dev queries with a relevant passage, and their qrels: `query_id`, `passage_id` (the row)."""

    ids: Sequence[str]
    texts: Sequence[str]
    qrels: Any


def dev_queries(corpus: Corpus) -> DevQueries | None:
    """At most `MOST_QUERIES` of them, drawn with a fixed seed; None for a corpus without any."""
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
    """Both encoders' nDCG@10 on the dev queries, and their times."""
    ids = exact.tokenize(dev.texts)
    found = []
    for encoder in (exact, small):
        vectors_QD = cut(encoder.vectors(ids), index.width, normalize)
        found.append((ndcg10(dev, index.search(vectors_QD, DEPTH)[0]), least_milliseconds(encoder.vectors, ids)))
    (ndcg_exact, ms_exact), (ndcg_small, ms_small) = found
    return DevFigures(len(dev.ids), ndcg_exact, ndcg_small, ms_exact, ms_small)


def ndcg10(dev: DevQueries, rows_QK: NDArray[np.int32]) -> float:
    """The mean nDCG@10 of rankings, given as passage rows int32 [Q, K] padded with -1."""
    import ir_measures

    from stillhouse.evaluation.measures import per_query_of_rows

    measure = ir_measures.nDCG @ 10
    return float(per_query_of_rows(dev.qrels, np.array(dev.ids, dtype=object), rows_QK, [measure])[str(measure)].mean())


def least_milliseconds(vectors: Callable[[Sequence[list[int]]], object], ids: Sequence[list[int]]) -> float:
    """Milliseconds of the fastest of some queries, so that other load on the machine matters little."""
    taken = []
    for each in [*ids[:1], *ids[:TIMED]]:  # the first one twice, as a warm-up
        began = time.perf_counter()
        vectors([each])
        taken.append(time.perf_counter() - began)
    return 1000 * min(taken[1:])
