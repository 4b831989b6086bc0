"""Fixtures of the step tests: a retriever to index and search with, and a corpus with passages of many lengths."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from stillhouse.core.artifacts import read_manifest, whole_folder, write_manifest
from stillhouse.corpus.store import Corpus, write_tables


@pytest.fixture
def retriever(run_step: Callable[..., dict[str, Path]], tiny_model: Path) -> Path:
    settings = {"model": str(tiny_model), "pooling": "mean", "query_length": 16, "passage_length": 24}
    return run_step("fetch-model", {}, **settings)["encoder"]


@pytest.fixture
def dense(run_step: Callable[..., dict[str, Path]], small_corpus: Path, retriever: Path) -> dict[str, Path]:
    """Return the small corpus, the retriever and its index."""
    index = run_step("index", {"corpus": small_corpus, "retriever": retriever}, precision="fp32")["index"]
    return {"corpus": small_corpus, "retriever": retriever, "index": index}


@pytest.fixture
def indexed(dense: dict[str, Path]) -> dict[str, Path]:
    """Return the same by the names of the inputs of a training on an index."""
    return {"corpus": dense["corpus"], "encoder": dense["retriever"], "old_index": dense["index"]}


@pytest.fixture
def bm25(run_step: Callable[..., dict[str, Path]], small_corpus: Path) -> Path:
    return run_step("bm25", {"corpus": small_corpus}, negatives_depth=5)["bm25"]


@pytest.fixture
def made_but_for(small_corpus: Path, tmp_path: Path) -> Callable[..., Path]:
    """Returns a function that gives the small corpus, as if all its questions but those named were made from it."""

    def corpus_of(*real: str) -> Path:
        labelled = Corpus.open(small_corpus)
        tables = {name: getattr(labelled, name).to_dict("list") for name in ("passages", "queries", "qrels")}
        tables["queries"]["origin"] = ["source" if id in real else "ict" for id in tables["queries"]["query_id"]]
        folder = tmp_path / f"made {len(real)}"
        with whole_folder(folder) as staging:
            write_tables(staging, tables)
            write_manifest(staging, "ingest", {}, {}, read_manifest(small_corpus).facts)
        return folder

    return corpus_of


@pytest.fixture
def made_questions(made_but_for: Callable[..., Path]) -> Path:
    """The small corpus, as if its questions were made from its passages."""
    return made_but_for()


@pytest.fixture(scope="session")
def uneven_corpus(small_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the small corpus with two-sentence passages of 13 to 19 tokens: `tiny_modernbert` has a window of 7."""
    tables = {
        name: pq.read_table(small_corpus / f"{name}.parquet").to_pydict() for name in ("passages", "queries", "qrels")
    }
    tables["passages"]["text"] = [
        text.removesuffix(" and grows in the tree") + ". The tree grows" + " in the tree" * (number % 3)
        for number, text in enumerate(tables["passages"]["text"])
    ]
    folder = tmp_path_factory.mktemp("uneven") / "corpus"
    with whole_folder(folder) as staging:
        write_tables(staging, tables)
        write_manifest(staging, "ingest", {}, {}, {"passages": 24})
    return folder
