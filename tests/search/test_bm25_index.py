"""BM25 over a stream of passages gives the same scores as bm25s over lists in memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import bm25s
import numpy as np
import pytest
import Stemmer

from stillhouse.core.errors import InputError
from stillhouse.search import bm25
from stillhouse.search.bm25 import BM25


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


def test_what_is_saved_is_an_index_of_bm25s(tmp_path: Path) -> None:
    texts = ["the mouse hides", "a cat sees the mouse", "cats hear mice and owls", "an owl hears both"]
    queries = ["who hears mice", "cat and mouse", "nothing at all"]
    made = BM25.of(iter(texts), 1.2, 0.6)
    made.save(tmp_path)
    rows_QK, scores_QK = made.search(queries, 4)
    again_rows_QK, again_scores_QK = BM25.load(tmp_path).search(queries, 4)
    assert (rows_QK == again_rows_QK).all() and (scores_QK == again_scores_QK).all()
    theirs = bm25s.BM25.load(tmp_path)
    plain = bm25s.BM25(k1=1.2, b=0.6)
    options = {"stopwords": "en", "stemmer": Stemmer.Stemmer("english"), "show_progress": False}
    plain.index(bm25s.tokenize(texts, **options), show_progress=False)
    for words in bm25s.tokenize(queries, return_ids=False, **options)[:2]:
        assert theirs.get_scores(words) == pytest.approx(plain.get_scores(words))
    assert not [path for path in tmp_path.iterdir() if path.suffix not in (".npy", ".json")]


def test_pairs_are_scored_as_the_search_scores_them(tmp_path: Path) -> None:
    texts = ["the mouse hides", "a cat sees the mouse", "cats hear mice and owls", "an owl hears both"]
    queries = ["who hears mice", "cat and mouse"]
    made = BM25.of(iter(texts), 1.5, 0.75)
    rows_QK, scores_QK = made.search(queries, 4)
    found = rows_QK >= 0
    assert (made.scores_of(queries, rows_QK)[found] == scores_QK[found]).all()
    assert made.scores_of(queries, np.array([[-1, 0], [3, -1]], dtype=np.int32)).tolist()[1][0] == 0
    query_P, row_P = np.array([1, 0, 1]), np.array([1, 2, 2], dtype=np.int32)
    slow = [
        made.scores_of([queries[query]], np.array([[row]], dtype=np.int32))[0, 0] for query, row in zip(query_P, row_P)
    ]
    assert made.score_pairs(queries, query_P, row_P).tolist() == slow


def test_a_folder_without_an_index_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no BM25 index"):
        BM25.load(tmp_path)


def test_jax_stays_out_where_it_is_installed(tmp_path: Path) -> None:
    """A stand-in for JAX says when it is imported; a program that uses JAX itself keeps it."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("print('jax is imported')", encoding="utf-8")
    (tmp_path / "jax" / "lax.py").write_text("top_k = None", encoding="utf-8")
    program = (
        "import sys\nfrom stillhouse.search.bm25 import BM25\n"
        "print(BM25.of(['red bird', 'blue fish'], 1.2, 0.75).search(['blue'], 1)[0].tolist())\n"
        "print('jax' in sys.modules)\nimport jax"
    )
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": paths}
    )
    assert done.stdout.splitlines() == ["[[1]]", "False", "jax is imported"], done.stderr
