"""The retrieval steps in a chain, with a tiny model: outputs, and refusals of inputs that do not match."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder as OtherCrossEncoder

from stillhouse.core.artifacts import read_manifest, whole_folder, write_manifest
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.evaluation.runs import read_run, write_run
from stillhouse.models.cross_encoder import CrossEncoder
from stillhouse.training.negatives import Negatives
from stillhouse.training.teacher import Teacher

Run = Callable[..., dict[str, Path]]
SHORT = {
    "max_steps": 2,
    "batch_size": 4,
    "negatives_per_query": 2,
    "negatives_depth": 4,
    "precision": "fp32",
    "eval_share": None,
}


@pytest.fixture
def lexical(run_step: Run, small_corpus: Path) -> dict[str, Path]:
    return run_step("bm25", {"corpus": small_corpus}, negatives_depth=5)


def train(run_step: Run, corpus: Path, encoder: Path, negatives: Path, into: str, **more: object) -> Path:
    inputs = {"corpus": corpus, "encoder": encoder, "negatives": negatives}
    return run_step("train-retriever", inputs, into, **{**SHORT, **more})["retriever"]


def test_bm25_is_robertson_and_sparck_jones_written_out(run_step: Run, small_corpus: Path) -> None:
    """This is Lucene's BM25 with k1 1.5 and b 0.75, one word at a time, over the words that bm25s keeps."""
    import bm25s
    import Stemmer

    corpus = Corpus.open(small_corpus)
    stemmer = Stemmer.Stemmer("english")

    def words(texts: list[str]) -> list[list[str]]:
        return bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, return_ids=False, show_progress=False)

    passages = words(passage_texts(corpus))
    mean = np.mean([len(passage) for passage in passages])
    query = corpus.queries_of("test").iloc[0]
    expected = np.zeros(len(passages))
    for word in words([query["text"]])[0]:
        frequency = np.array([passage.count(word) for passage in passages])
        containing = (frequency > 0).sum()
        weight = np.log(1 + (len(passages) - containing + 0.5) / (containing + 0.5))
        lengths = np.array([len(passage) for passage in passages])
        expected += weight * frequency / (frequency + 1.5 * (1 - 0.75 + 0.75 * lengths / mean))
    run = read_run(run_step("bm25", {"corpus": small_corpus})["run"] / "test.trec")
    found = run[run["query_id"] == query["query_id"]]
    assert len(found) == (expected > 0).sum()
    rows = corpus.rows_of(found["passage_id"])
    assert np.allclose(found["score"], expected[rows], rtol=1e-5)


def test_mined_negatives_are_the_index_ranking_without_the_positives(
    run_step: Run, small_corpus: Path, dense: dict[str, Path]
) -> None:
    mined = Negatives.read(run_step("mine", dense, negatives_depth=6, precision="fp32")["negatives"])
    assert list(mined.queries["split"]) == ["train"] * 12 + ["dev"] * 6 and mined.rows_QD.shape == (18, 6)
    run = read_run(run_step("retrieve", dense, depth=7, precision="fp32")["run"] / "dev.trec")
    corpus = Corpus.open(small_corpus)
    for number, query_id in enumerate(mined.queries["query_id"][12:], 12):
        ranked = corpus.rows_of(run[run["query_id"] == query_id]["passage_id"])
        own = corpus.positives([query_id])[1]
        assert mined.rows_QD[number].tolist() == [row for row in ranked if row not in own][:6]


def test_three_stages_end_in_a_distilled_retriever(
    run_step: Run, small_corpus: Path, retriever: Path, lexical: dict[str, Path]
) -> None:
    corpus = {"corpus": small_corpus}
    first = train(run_step, small_corpus, retriever, lexical["negatives"], "r1")
    index = run_step("index", {**corpus, "retriever": first})["index"]
    negatives = run_step("mine", {**corpus, "retriever": first, "index": index}, negatives_depth=6)["negatives"]
    inputs = {**corpus, "negatives": negatives, "init": retriever}
    reranker = run_step("train-reranker", inputs, max_length=32, **SHORT)["reranker"]
    teacher = run_step("score-pairs", {**corpus, "negatives": negatives, "reranker": reranker}, depth=4)["teacher"]
    scores = Teacher.read(teacher)
    of_train = (scores.queries["split"] == "train").to_numpy()
    assert not np.isnan(scores.negative_scores_QD[:, :4]).any()
    assert np.isnan(scores.negative_scores_QD[of_train, 4:]).all()
    assert not np.isnan(scores.negative_scores_QD[~of_train]).any(), "of dev queries, all that were mined"
    inputs = {**corpus, "encoder": retriever, "negatives": negatives, "teacher": teacher}
    outputs = run_step("train-retriever", inputs, "distilled", **SHORT)
    curves = (outputs["curves"] / "curves.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in curves] == ["step", "0", "1", "2"]
    assert set(read_manifest(outputs["retriever"]).inputs) == {"corpus", "encoder", "negatives", "teacher"}

    run = run_step("rerank", {**corpus, "candidates": lexical["run"], "reranker": reranker}, depth=3)["run"]
    before, after = read_run(lexical["run"] / "test.trec"), read_run(run / "test.trec")
    for query in before["query_id"].unique():
        old = list(before[before["query_id"] == query]["passage_id"])
        new = list(after[after["query_id"] == query]["passage_id"])
        assert sorted(old[:3]) == sorted(new[:3]) and old[3:] == new[3:]


def test_negatives_of_another_corpus_are_refused(
    run_step: Run, small_corpus: Path, retriever: Path, lexical: dict[str, Path], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(small_corpus, other)
    write_manifest(other, "ingest", {}, {}, {"passages": 24, "changed": True})
    with pytest.raises(InputError, match="--negatives was made from another corpus"):
        train(run_step, other, retriever, lexical["negatives"], "refused")


def test_questions_of_one_split_do_not_get_the_scores_of_another(
    run_step: Run, small_corpus: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """Two splits may have the same candidates in the same order, such as all passages of a small corpus."""
    corpus = Corpus.open(small_corpus)
    torch.manual_seed(1)
    reranker = CrossEncoder.start(tiny_model, 32)
    with torch.no_grad():
        for parameter in reranker.parameters():
            parameter.mul_(10 if parameter.ndim > 1 else 1)
    (tmp_path / "reranker").mkdir()
    reranker.save(tmp_path / "reranker")
    with whole_folder(tmp_path / "candidates") as staging:
        for split in ("dev", "test"):
            ids = list(corpus.queries_of(split)["query_id"])
            rows = np.tile(np.arange(5, dtype=np.int32), (len(ids), 1))
            scores = np.tile(np.arange(5, 0, -1, dtype=np.float32), (len(ids), 1))
            write_run(staging / f"{split}.trec", ids, corpus.passage_ids, rows, scores, "all")
        write_manifest(staging, "retrieve", {}, {"corpus": read_manifest(small_corpus).digest}, {})
    inputs = {"corpus": small_corpus, "candidates": tmp_path / "candidates", "reranker": tmp_path / "reranker"}
    run = read_run(run_step("rerank", inputs, precision="fp32")["run"] / "test.trec")
    theirs = OtherCrossEncoder(str(tmp_path / "reranker"), device="cpu")
    texts = dict(zip(corpus.queries["query_id"], corpus.queries["text"]))
    passages = dict(zip(corpus.passages["passage_id"], passage_texts(corpus)))
    expected = theirs.predict([(texts[query], passages[row]) for query, row in zip(run["query_id"], run["passage_id"])])
    assert np.allclose(run["score"], expected, atol=1e-5) and len(set(run["score"].round(4))) > 6
