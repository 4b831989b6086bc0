"""Compares what the steps find with all scores: of the same folder in sentence-transformers, and of bm25s."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import bm25s
import numpy as np
import pytest
import Stemmer
import torch
from sentence_transformers import SentenceTransformer

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.context import Context
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.evaluation.runs import read_run
from stillhouse.search.searcher import Searcher


def bm25_scores(queries: list[str], passages: list[str]) -> np.ndarray:
    """The score of every query with every passage in bm25s, [Q, N]."""
    options = {"stopwords": "en", "stemmer": Stemmer.Stemmer("english"), "show_progress": False}
    index = bm25s.BM25(k1=1.5, b=0.75)
    index.index(bm25s.tokenize(passages, **options), show_progress=False)
    words = bm25s.tokenize(queries, return_ids=False, **options)
    return np.stack([index.get_scores(each) if each else np.zeros(len(passages)) for each in words])


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


def check_training(
    run_step: Callable[..., dict[str, Path]], corpus: Path, start: Path, settings: Mapping[str, object], work: Path
) -> dict[str, Path]:
    """Train a retriever twice, with the same result, and compare its searches as `check_search` does.

    Returns the negatives, the retriever and its index.
    """
    negatives = run_step("bm25", {"corpus": corpus}, negatives_depth=5)["negatives"]
    inputs = {"corpus": corpus, "encoder": start, "negatives": negatives}
    retriever = run_step("train-retriever", inputs, **settings)["retriever"]
    torch.manual_seed(12345)
    assert read_manifest(run_step("train-retriever", inputs, "again", **settings)["retriever"]) == read_manifest(
        retriever
    )
    model = SentenceTransformer(str(retriever), device="cpu")
    passages_ND = model.encode_document(passage_texts(Corpus.open(corpus)))
    index = check_search(run_step, corpus, retriever, model, passages_ND, work)
    return {"negatives": negatives, "retriever": retriever, "index": index}
