"""The parts of the suite that search vectors: mining, and indexes by kind."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from suite_parts import Job, Part, Row, Side, Timed

DEPTH = 50
KINDS = ("flat", "hnsw", "ivfpq", "sq8")
QUERIES = 200


def prepare_mining(job: Job) -> None:
    import mining

    mining.prepare(job.data / "medquad", job.folder, job.size)


def mine(*, peer: str = "") -> Side:
    def side(job: Job) -> Timed:
        import mining

        if peer:
            run, _ = mining.others(job.folder, DEPTH, "none", use_faiss=peer == "faiss")
        else:
            run, _ = mining.ours(job.folder, DEPTH, "none")

        def timed() -> None:
            run()

        return timed

    return side


def asked(job: Job) -> Namespace:
    """What the functions of `search.py` go by."""
    return Namespace(folder=job.folder, passages=job.size, queries=QUERIES)


def sample_vectors(job: Job) -> None:
    import numpy as np
    import search

    from stillhouse.arrays import save_array

    search.sample(job.folder, job.size, QUERIES)
    save_array(job.folder / "vectors.npy", search.stored(asked(job)).rows(np.arange(job.size)))


def sample_indexes(job: Job) -> None:
    import search

    sample_vectors(job)
    for kind in KINDS:
        search.build_one(kind, asked(job))


def build(kind: str) -> Side:
    def side(job: Job) -> Timed:
        import search

        return lambda: {"seconds": search.build_one(kind, asked(job))["seconds"]}

    return side


def build_by_faiss(kind: str) -> Side:
    """The same kind of index by faiss alone, all vectors in memory."""

    def side(job: Job) -> Timed:
        import faiss
        import numpy as np
        import search

        from stillhouse.retrieval.index.index_kinds import EMPTY
        from stillhouse.retrieval.settings import IndexConfig

        def run() -> None:
            vectors = np.load(job.folder / "vectors.npy")
            config = IndexConfig(kind=kind)
            index = faiss.IndexFlatIP(search.WIDTH) if kind == "flat" else EMPTY[kind](config, job.size, search.WIDTH)
            if not index.is_trained:
                index.train(vectors)
            index.add(vectors)
            faiss.write_index(index, str(job.folder / f"{kind}.plain"))

        return run

    return side


def search_index(kind: str) -> Side:
    def side(job: Job) -> Timed:
        import numpy as np
        import search

        index = search.VectorIndex(search.index_folder(asked(job), kind))
        return searched(index.search, np.load(job.folder / "queries.npy"), scores=1)

    return side


def search_by_faiss(kind: str) -> Side:
    def side(job: Job) -> Timed:
        import faiss
        import numpy as np
        import search

        index = faiss.read_index(str(search.index_folder(asked(job), kind) / "index.faiss"))
        return searched(index.search, np.load(job.folder / "queries.npy"), scores=0)

    return side


def searched(search: Any, queries: Any, scores: int) -> Timed:
    """All queries to depth 100; the best scores stand at place `scores` of what a search gives."""
    search(queries[:2], 10)
    return lambda: {"value": float(search(queries, 100)[scores][:, 0].mean())}


VECTORS = (2500, 10_000, 40_000)
PARTS = (
    Part(
        "mining",
        f"Mines {DEPTH} negatives for each train and dev query of MedQuAD's first passages. Vectors are ready on both "
        "sides; the negatives are written to disk, as rows of an integer matrix here and as a data set of texts there.",
        "passages",
        (500, 2000, 8000),
        (
            Row(
                "from vectors",
                mine(),
                {f"sentence_transformers, {by}": mine(peer=by) for by in ("torch", "faiss")},
            ),
        ),
        prepare_mining,
        ("medquad",),
    ),
    Part(
        "index",
        "Builds an index on disk from stored segments of vectors of width 384; faiss reads one file into memory.",
        "vectors",
        VECTORS,
        tuple(Row(f"`{kind}`", build(kind), {"faiss": build_by_faiss(kind)}) for kind in KINDS),
        sample_vectors,
    ),
    Part(
        "search",
        f"Searches {QUERIES} queries at once to depth 100. Our `flat` stays on disk; faiss holds all vectors in "
        "memory. *Value* is the mean of the best scores.",
        "vectors",
        VECTORS,
        tuple(Row(f"`{kind}`", search_index(kind), {"faiss": search_by_faiss(kind)}) for kind in KINDS),
        sample_indexes,
    ),
)
