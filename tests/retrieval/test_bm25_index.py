"""BM25 over passages that come one after the other: the scores of bm25s over lists in memory."""

from __future__ import annotations

import bm25s
import numpy as np
import pytest
import Stemmer

from stillhouse.errors import InputError
from stillhouse.retrieval import bm25
from stillhouse.retrieval.bm25 import BM25


@pytest.mark.parametrize("at_once", [1, 7, 1024])
def test_scores_are_those_of_an_index_of_lists(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bm25, "TEXTS_AT_ONCE", at_once)
    rng = np.random.default_rng(0)
    words = ["running", "runs", "tea", "leaves", "leaf", "the", "water", "boils", "of", "stills", "mash"]
    texts = ["", "the of", *(" ".join(rng.choice(words, rng.integers(1, 12))) for _ in range(40))]
    queries = ["run of the tea", "boiling mash", "unknown", "leaf leaf water"]
    cut = [
        bm25s.tokenize(part, stopwords="en", stemmer=Stemmer.Stemmer("english"), return_ids=False, show_progress=False)
        for part in (texts, queries)
    ]
    plain = bm25s.BM25(k1=1.2, b=0.6)
    plain.index(cut[0], show_progress=False)
    expected = np.stack([plain.get_scores(tokens) if tokens else np.zeros(len(texts)) for tokens in cut[1]])
    rows_QK, scores_QK = BM25.of(iter(texts), 1.2, 0.6).search(queries, len(texts))
    assert rows_QK.shape == (len(queries), len(texts))
    found = np.zeros_like(expected)
    for query, (rows, scores) in enumerate(zip(rows_QK, scores_QK)):
        found[query, rows[rows >= 0]] = scores[rows >= 0]
    assert np.allclose(found, expected, rtol=1e-6) and (expected > 0).any()


def test_passages_of_stop_words_alone_are_refused() -> None:
    with pytest.raises(InputError, match="no passage has a word"):
        BM25.of(iter(["the of", "a"]), 1.5, 0.75)
