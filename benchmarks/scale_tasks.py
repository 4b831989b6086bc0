"""What `scale.py` measures: the steps of a corpus that need no model, each a function of the corpus's folder.

A task checks its result against its input and raises an `AssertionError` if they differ. A step that needs a model's
vectors gets random ones and otherwise works as usual.

Shapes: N passages, D width, Q queries.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.run_steps import step
from benchmarks.sized_releases import unit
from benchmarks.word_passages import counts, write_jsonl

QUERIES, DEPTH, CHECKED = 1000, 100, 20
CENTRES, SPREAD, NOISE = 2000, 0.8, 0.4
FITTED_TO, LONGEST_PASSAGE, NGRAMS = 20_000, 48, 4
"""Passages that the sampler of tokens is fitted to, the most tokens of a passage, the longest n-gram counted."""

Found = dict[str, Any] | None


@dataclass(frozen=True)
class Place:
    """A corpus of `passages` in `folder`, its vectors of `width` in `shards`; `data` has the real data sets."""

    folder: Path
    passages: int
    width: int
    shards: int
    data: Path
    memory_mib: int = 1024

    @property
    def corpus(self) -> Path:
        return self.folder / "corpus"

    @property
    def source(self) -> Path:
        return self.folder / "passages.jsonl"

    def vectors(self, number: int) -> Path:
        return self.folder / "vectors" / str(number)

    def index(self, kind: str) -> Path:
        return self.folder / f"index-{kind}"


def kept(*paths: Path) -> dict[str, Any]:
    """The disk space of a result."""
    files = [path for place in paths for path in (place.rglob("*") if place.is_dir() else [place]) if path.is_file()]
    return {"kept": sum(path.stat().st_size for path in files) / 2**20}


def sample_source(place: Place, _: str) -> Found:
    write_jsonl(place.source, place.passages)
    return kept(place.source)


def ingest_jsonl(place: Place, _: str) -> Found:
    facts = step("ingest", {}, {"corpus": place.corpus}, source=str(place.source), queries="source").facts
    repeated_ids, _ = counts(place.passages)
    assert facts["passages"] == place.passages, facts["passages"]
    assert sum(facts["rejected"].values()) == repeated_ids, facts["rejected"]
    return kept(place.corpus)


def ingest_parquet(place: Place, _: str) -> Found:
    """Reads the corpus's own table as a source: the result must be the same."""
    from stillhouse.core.artifacts import digest_file

    table, again = place.corpus / "passages.parquet", place.folder / "again"
    step("ingest", {}, {"corpus": again}, source=str(table), queries="source")
    assert digest_file(again / table.name) == digest_file(table)
    found = kept(again)
    shutil.rmtree(again)
    return found


def validate(place: Place, _: str) -> Found:
    metrics = step(
        "validate", {"corpus": place.corpus}, {"validation": place.folder / "validation"}, max_rejected_fraction=1.0
    ).metrics
    assert metrics["passages"] == place.passages
    _, repeated = counts(place.passages)
    assert round(metrics["duplicate_text_fraction"] * place.passages) == repeated, metrics
    return kept(place.folder / "validation")


def look_up_ids(place: Place, _: str) -> Found:
    """Looks ids up, as every step does that reads qrels, runs or negatives."""
    from stillhouse.corpus.store import Corpus

    corpus = Corpus.open(place.corpus)
    rows = np.linspace(0, place.passages - 1, QUERIES).astype(np.int64)
    assert corpus.rows_of([f"p{row}" for row in rows]).tolist() == rows.tolist()
    return None


def encode_shard(place: Place, number: str) -> Found:
    """What `encode` does for a shard, with random vectors in the place of the model's."""
    from stillhouse.corpus.store import Corpus, passage_text_blocks
    from stillhouse.search.corpus_encoding import BLOCK, digests_of
    from stillhouse.search.embeddings import Embeddings, shard_rows, write_segment, write_shard

    corpus = Corpus.open(place.corpus)
    rows = shard_rows(place.passages, int(number), place.shards)
    digests_N, lengths_N = digests_of(partial(passage_text_blocks, corpus), rows)
    new, into = place.folder / "new", place.vectors(int(number))
    for unfinished in (new, into):
        shutil.rmtree(unfinished, ignore_errors=True)
    missing = Embeddings([], digests_N, place.width).missing
    order = missing[np.argsort(-lengths_N[missing], kind="stable")]
    for begin in range(0, len(order), BLOCK):
        block = order[begin : begin + BLOCK]
        write_segment(new, digests_N[block], random_vectors(rows[block], place.width))
    embeddings = Embeddings([new], digests_N, place.width)
    assert not len(embeddings.missing)
    into.mkdir(parents=True)
    write_shard(into, embeddings, digests_N, corpus.passage_ids, int(rows[0]))
    del embeddings
    shutil.rmtree(new)
    return kept(into)


def random_vectors(rows_N: np.ndarray, width: int) -> np.ndarray:
    """Float32 [N, D] of length 1, in clusters as embeddings are, of these rows of the corpus."""
    rng = np.random.default_rng([int(rows_N[0]), len(rows_N)])
    centre_N = rows_N % CENTRES
    noise_ND = unit(rng.standard_normal((len(rows_N), width), dtype=np.float32))
    return unit(centres(width)[centre_N] + SPREAD * noise_ND)


def centres(width: int) -> np.ndarray:
    return unit(np.random.default_rng(0).standard_normal((CENTRES, width), dtype=np.float32))


def build_index(place: Place, kind: str) -> Found:
    """What `index` does with the vectors of all shards."""
    from stillhouse.corpus.store import Corpus
    from stillhouse.search.settings import IndexConfig
    from stillhouse.search.vector_index import CutVectors, write_index

    into, corpus = place.index(kind), Corpus.open(place.corpus)
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir()
    vectors = CutVectors(stored(place), place.width, True)
    # By default there are more clusters, whose fitting would be most of the time. At this size, codes are all.
    few = {"ivf_nlist": max(1, min(2048, place.passages // 39)), "rescore_multiplier": 0} if kind == "ivfpq" else {}
    write_index(into, IndexConfig(kind=kind, **few), vectors, corpus.passage_ids, place.width)
    return kept(into)


def stored(place: Place) -> Any:
    """The vectors of all shards, found by the digests of the corpus's texts."""
    from stillhouse.corpus.store import Corpus, passage_text_blocks
    from stillhouse.search.embeddings import Embeddings, text_digests

    digests_N = np.concatenate([text_digests(block) for block in passage_text_blocks(Corpus.open(place.corpus))])
    found = Embeddings([place.vectors(number) for number in range(1, place.shards + 1)], digests_N, place.width)
    assert found.known == place.passages
    return found


def search_index(place: Place, kind: str) -> Found:
    """All queries at once. Exact search must find what a plain comparison of all vectors finds."""
    from stillhouse.core.arrays import save_array
    from stillhouse.search.vector_index import VectorIndex

    index, queries_QD = VectorIndex(place.index(kind)), queries(place)
    rows_QK, scores_QK = index.search(queries_QD, DEPTH)
    assert rows_QK.shape == (len(queries_QD), min(DEPTH, place.passages))
    save_array(place.folder / f"found-{kind}.npy", rows_QK)
    exact = place.folder / "found-flat.npy"
    if kind == "flat":
        expected_QK = np.empty((CHECKED, 0), dtype=np.float32)
        for _, block_BD in index.blocks():
            together = np.concatenate([expected_QK, queries_QD[:CHECKED] @ block_BD.T], axis=1)
            expected_QK = np.sort(together, axis=1)[:, : -rows_QK.shape[1] - 1 : -1]
        np.testing.assert_allclose(scores_QK[:CHECKED], expected_QK, atol=1e-5)
        return {"recall": 1.0}
    common = [np.isin(mine[:10], theirs[:10]).mean() for mine, theirs in zip(rows_QK, np.load(exact))]
    return {"recall": float(np.mean(common))}


def queries(place: Place) -> np.ndarray:
    """Float32 [Q, D]: noisy copies of some passages' vectors."""
    from stillhouse.search.vector_index import VectorIndex

    rng = np.random.default_rng(1)
    rows = np.sort(rng.choice(place.passages, min(QUERIES, place.passages), replace=False)).astype(np.int32)
    noise_QD = unit(rng.standard_normal((len(rows), place.width), dtype=np.float32))
    return unit(VectorIndex(place.index("flat")).vectors(rows) + NOISE * noise_QD)


def sample_tokens(place: Place, _: str) -> Found:
    """Token ids drawn from a trigram model of the opening passages of `wiki-intro`."""
    from benchmarks import counting
    from benchmarks.token_sampler import TokenSampler

    texts = [text for text, _ in zip(counting.passages(wiki_intro(place.data)), range(FITTED_TO))]
    fitted = place.folder / "fitted"
    counting.tokenize(texts, fitted, LONGEST_PASSAGE)
    sampler = TokenSampler(np.load(fitted / "ids.npy"), np.load(fitted / "offsets.npy"))
    into = place.folder / "tokens"
    sampler.write(into, int(place.passages * sampler.lengths.mean()), 1)
    return kept(into) | {"tokens": int(np.load(into / "offsets.npy", mmap_mode="r")[-1])}


def wiki_intro(data: Path) -> Path:
    return data / "wiki-intro" / "corpus.jsonl.gz"


def count_ngrams(place: Place, _: str) -> Found:
    """Exact counts of all n-grams. Their sums must be those that the passages' lengths say."""
    from stillhouse.pretraining import ngrams
    from stillhouse.pretraining.ngram_merge import Memory

    ids = np.load(place.folder / "tokens" / "ids.npy", mmap_mode="r")
    offsets = np.load(place.folder / "tokens" / "offsets.npy")
    work = place.folder / "counts"
    tables = ngrams.count_ngrams(ids, offsets, NGRAMS, work, Memory(place.memory_mib << 20, 2))
    lengths_N = np.diff(offsets)
    for n, order in enumerate(tables.orders, start=1):
        assert order.total == int(np.maximum(lengths_N - n + 1, 0).sum()), (n, order.total)
    found = {"tokens": len(ids), "distinct": [len(order.keys) for order in tables.orders]} | kept(work)
    del tables
    shutil.rmtree(work)
    return found


TASKS: dict[str, Callable[[Place, str], Found]] = {
    "source": sample_source,
    "ingest JSONL": ingest_jsonl,
    "ingest Parquet": ingest_parquet,
    "validate": validate,
    "look up ids": look_up_ids,
    "shard": encode_shard,
    "index": build_index,
    "search": search_index,
    "tokens": sample_tokens,
    "count n-grams": count_ngrams,
}
