"""Compares a retriever's results in the steps with all scores of the same folder in sentence-transformers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from stillhouse.core.context import Context
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.runs import read_run
from stillhouse.search.searcher import Searcher


def check_search(
    run_step: Callable[..., dict[str, Path]],
    corpus: Path,
    retriever: Path,
    model: SentenceTransformer,
    passages_ND: np.ndarray,
    work: Path,
) -> Path:
    """Index a corpus of at most 24 passages with the vectors `passages_ND`; retrieve and search with its test queries.

    The scores must equal those of `model` within 1e-5. Returns the index.
    """
    inputs = {"corpus": corpus, "retriever": retriever}
    index = run_step("index", inputs, precision="fp32")["index"]
    run = read_run(run_step("retrieve", inputs | {"index": index}, depth=24, precision="fp32")["run"] / "test.trec")
    queries = Corpus.open(corpus).queries_of("test")
    exact_QN = model.encode_query(list(queries["text"])) @ passages_ND.T
    for query, scores in zip(queries["query_id"], exact_QN, strict=True):
        np.testing.assert_allclose(run[run["query_id"] == query]["score"], np.sort(scores)[::-1], atol=1e-5)
    searcher = Searcher(corpus, retriever, index, Context(work, "cpu", quiet=True))
    assert searcher.search(str(queries["text"].iloc[0]), top=1)[0].score == pytest.approx(exact_QN[0].max(), abs=1e-5)
    return index
