"""Corpora that tests index, including changed ones, and the bytes that a step wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd

from stillhouse.core.artifacts import whole_folder, write_manifest
from stillhouse.corpus.store import Corpus, write_tables

Run = Callable[..., dict[str, Path]]
FP32 = {"precision": "fp32"}


def write_corpus(folder: Path, tables: Mapping[str, pd.DataFrame]) -> Path:
    with whole_folder(folder) as staging:
        write_tables(staging, {name: {key: list(table[key]) for key in table} for name, table in tables.items()})
        write_manifest(staging, "ingest", {}, {}, {"passages": len(tables["passages"])})
    return folder


def corpus_of(small: Path, folder: Path, passages: pd.DataFrame) -> Path:
    """A corpus of other passages, with the queries whose relevant passage is still there."""
    corpus = Corpus.open(small)
    qrels = corpus.qrels[corpus.qrels["passage_id"].isin(passages["passage_id"])]
    queries = corpus.queries[corpus.queries["query_id"].isin(qrels["query_id"])]
    return write_corpus(folder, {"passages": passages, "queries": queries, "qrels": qrels})


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
