"""Questions without labels: what is read as such, and which passage they get, compared with every pair's score."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beir_source import write_beir
from exact_ranking import bm25_scores
from sentence_transformers import SentenceTransformer

from stillhouse.core.errors import InputError
from stillhouse.corpus.first_look import look_at
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.evaluation.relevance import JudgedQueries
from stillhouse.models.token_lengths import misfit

Run = Callable[..., dict[str, Path]]
WORDS = ("bird", "fish", "tree", "stone", "cloud", "river", "red", "green", "blue", "old", "new", "small")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """36 passages, twelve questions of which two have a label, one repeats another and one repeats a test question."""
    draw = np.random.default_rng(0).choice
    texts = [f"the {' '.join(draw(WORDS, 24))} number {n}" for n in range(36)]
    asked = [f"where is the {' '.join(draw(WORDS, 3))}" for _ in range(10)]
    asked += [asked[2].upper(), asked[1]]
    return write_beir(tmp_path / "source", texts, asked, train=[0], test=[1])


def test_questions_without_labels_are_kept_apart(run_step: Run, source: Path, tmp_path: Path) -> None:
    corpus = Corpus.open(run_step("ingest", {}, source=str(source), queries="source", dev_fraction=0.0)["corpus"])
    assert list(corpus.unjudged["query_id"]) == [f"q{n}" for n in range(2, 10)]
    assert list(corpus.queries["query_id"]) == ["q0", "q1"] and corpus.rejected.empty
    assert corpus.facts["unjudged"] == 8
    assert corpus.facts["left_out"] == {"query: without labels, and its text stands there already": 2}
    again = run_step("ingest", {}, "again", source=str(corpus.folder), queries="source", dev_fraction=0.0)["corpus"]
    assert Corpus.open(again).unjudged.equals(corpus.unjudged)
    (source / "qrels" / "train.tsv").unlink()
    (source / "qrels" / "test.tsv").unlink()
    look = look_at(str(source))
    assert (look.unjudged, dict(look.questions), look.labelled) == (10, {}, False)


@pytest.mark.parametrize("pieces", [False, True])
def test_the_surest_questions_get_the_passage_that_all_scores_put_first(
    pieces: bool, run_step: Run, source: Path, retriever: Path, tmp_path: Path
) -> None:
    """The lead is that over the next document's best piece, if passages are split."""
    own: dict[str, Any] = {"source": str(source), "queries": "source", "dev_fraction": 0.0}
    read = {"tokenizer": retriever} if pieces else {}
    own |= {"split_tokens": 16} if pieces else {}
    folders = {"corpus": run_step("ingest", read, **own)["corpus"], "retriever": retriever}
    folders |= {"index": run_step("index", folders, precision="fp32")["index"]}
    folders |= {"bm25": run_step("bm25", {"corpus": folders["corpus"]}, negatives_depth=5, language="en")["bm25"]}
    made = run_step("label-queries", folders, share=0.5, precision="fp32")["queries"]

    corpus = Corpus.open(folders["corpus"])
    texts, asked = passage_texts(corpus), list(corpus.unjudged["text"])
    model = SentenceTransformer(str(retriever), device="cpu")
    passages_ND = model.encode(texts).astype(np.float64)
    spread = np.mean([np.std(np.delete(passages_ND @ own, row)) for row, own in enumerate(passages_ND)])
    factor = 3 if misfit(texts, retriever) else 1
    scores_QN = 0.3 * spread * factor * bm25_scores(asked, texts) + model.encode(asked) @ passages_ND.T
    articles = corpus.passages["article_id"].where(corpus.passages["article_id"] != "", corpus.passages["passage_id"])
    assert (articles.nunique() < len(texts)) == pieces
    best_QD = np.stack([scores_QN[:, articles == name].max(axis=1) for name in articles.unique()], axis=1)
    two_Q2 = np.sort(best_QD)[:, -2:]
    sure = np.sort(np.argsort(two_Q2[:, 0] - two_Q2[:, 1])[:4])
    expected = [
        (f"q{2 + question}", corpus.passages["passage_id"][scores_QN[question].argmax()]) for question in sure.tolist()
    ]

    rows = [line.split("\t") for line in (made / "qrels" / "train.tsv").read_text().splitlines()[1:]]
    assert [(query, passage) for query, passage, _ in rows] == expected
    kept = [json.loads(line) for line in (made / "queries.jsonl").read_text().splitlines()]
    assert [(row["_id"], row["text"]) for row in kept] == [(f"q{2 + n}", asked[n]) for n in sure.tolist()]

    # `ingest` adds them to the train queries, and they are no dev or test queries.
    after = Corpus.open(run_step("ingest", read, "after", **own, train_queries=str(made))["corpus"])
    found = after.qrels_of("train")
    of_q0 = corpus.qrels_of("train")["passage_id"].item()
    assert set(zip(found["query_id"], found["passage_id"])) == {("q0", of_q0), *expected}
    assert JudgedQueries(after, "test").texts == JudgedQueries(corpus, "test").texts
    other = run_step("label-queries", folders, "other", questions=str(source), share=1.0, precision="fp32")["queries"]
    assert len((other / "queries.jsonl").read_text().splitlines()) == 12
    for wrong in (tmp_path / "source" / "qrels", tmp_path / "nowhere"):
        with pytest.raises(InputError, match="with questions"):
            run_step("label-queries", folders, "none", questions=str(wrong))
        for name in ("dev_queries", "train_queries"):
            with pytest.raises(InputError, match="must be a folder with"):
                run_step("ingest", {}, "none", **own, **{name: str(wrong)})
