"""The steps that mine negatives: the effect of a margin and other sources, with a tiny model."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from passage_corpora import write_passages

from stillhouse.core.artifacts import read_manifest, write_manifest
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.training.group_training import open_samplers
from stillhouse.training.negatives import Negatives

Run = Callable[..., dict[str, Path]]


@pytest.fixture
def lexical(run_step: Run, small_corpus: Path) -> Path:
    return run_step("bm25", {"corpus": small_corpus}, negatives_depth=5)["negatives"]


def scores_of(corpus: Corpus, retriever: Path) -> np.ndarray:
    """Return the scores of all train and dev queries with all passages, from sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(retriever), device="cpu")
    texts = list(corpus.queries_of("train")["text"]) + list(corpus.queries_of("dev")["text"])
    return model.encode(texts) @ model.encode(passage_texts(corpus)).T


def rows(outputs: dict[str, Path]) -> list[list[int]]:
    return np.asarray(Negatives.read(outputs["negatives"]).rows_QD).tolist()


def test_a_margin_to_the_positive_whether_the_ranking_has_it_or_not(
    run_step: Run, small_corpus: Path, retriever: Path, dense: dict[str, Path]
) -> None:
    """Scores of all pairs give the expected lists, except close to the limit. Passage n is the positive of query n."""
    exact = scores_of(Corpus.open(small_corpus), retriever)
    made = run_step("mine", dense, negatives_depth=24, range_max=24, precision="fp32", margin="relative")
    dropped = 0
    for number, row in enumerate(rows(made)):
        positive = exact[number][number]
        limit = positive - 0.05 * abs(positive)
        allowed = {place for place in range(24) if place != number and exact[number][place] <= limit}
        unsure = {place for place in range(24) if abs(exact[number][place] - limit) < 1e-5}
        assert set(row) - {-1} - unsure == allowed - unsure
        dropped += 23 - len(allowed)
    facts = read_manifest(made["negatives"]).facts
    assert facts["above_margin"] == pytest.approx(dropped, abs=3) and dropped > 18
    assert facts["queries_without_negatives"] == sum(set(row) == {-1} for row in rows(made))


def test_sources_are_mixed(run_step: Run, dense: dict[str, Path], lexical: Path) -> None:
    own = rows(run_step("mine", dense, "own", negatives_depth=4))
    settings = {"negatives_depth": 4, "others_depth": 2, "random_negatives": 2}
    mixed = rows(run_step("mine", {**dense, "others": lexical}, "mixed", **settings))
    bm25 = np.load(lexical / "rows.npy").tolist()
    for number, row in enumerate(mixed):
        found = [passage for passage in row if passage >= 0]
        assert len(row) == 8 and len(set(found)) == len(found) and number not in found
        assert row[0] == own[number][0] and set(own[number]) | set(bm25[number][:2]) <= set(found)
        assert len(set(found) - set(own[number]) - set(bm25[number][:2])) == 2
    again = rows(run_step("mine", {**dense, "others": lexical}, "again", **settings))
    other = rows(run_step("mine", {**dense, "others": lexical}, "other", seed=7, **settings))
    assert again == mixed != other


def test_negatives_of_other_retrievers_may_be_mixed_in_but_not_of_other_corpora(
    run_step: Run, small_corpus: Path, retriever: Path, dense: dict[str, Path], lexical: Path, tmp_path: Path
) -> None:
    mined = run_step("mine", dense, "first", negatives_depth=4)["negatives"]
    inputs = {"corpus": small_corpus, "encoder": retriever, "negatives": lexical}
    short = {"max_steps": 1, "batch_size": 4, "negatives_per_query": 1, "negatives_depth": 4, "learning_rate": 0.01}
    other = run_step("train-retriever", inputs, **short)["retriever"]
    index = run_step("index", {"corpus": small_corpus, "retriever": other}, "other_index")["index"]
    inputs = {"corpus": small_corpus, "retriever": other, "index": index}
    run_step("mine", {**inputs, "others": mined}, "second", negatives_depth=4, others_depth=4)
    foreign = tmp_path / "foreign"
    shutil.copytree(mined, foreign)
    write_manifest(foreign, "mine", {}, {"corpus": "another"}, {})
    with pytest.raises(InputError, match="--others was made from another corpus"):
        run_step("mine", {**inputs, "others": foreign}, "third", negatives_depth=4, others_depth=4)


def test_a_positive_that_bm25_does_not_find_is_trained_on_all_the_same(run_step: Run, tmp_path: Path) -> None:
    """Query q0 shares no word with its passage, which BM25 cannot find; no other passage has the word of q1."""
    texts = ["red bird", "blue fish", "green tree", "green fish", "one tree"]
    splits = ["train", "train", "dev"]
    queries = {"query_id": ["q0", "q1", "q2"], "text": ["green tree", "blue", "red fish"], "split": splits}
    qrels = {"query_id": queries["query_id"], "passage_id": ["p0", "p1", "p0"], "relevance": [1] * 3, "split": splits}
    write_passages(tmp_path / "corpus", texts, {"queries": queries, "qrels": qrels})
    made = run_step("bm25", {"corpus": tmp_path / "corpus"})
    negatives, corpus = Negatives.read(made["negatives"]), Corpus.open(tmp_path / "corpus")
    assert [{row for row in rows if row >= 0} for rows in negatives.rows_QD.tolist()] == [{2, 3, 4}, set(), {1, 3}]
    assert read_manifest(made["negatives"]).facts["queries_without_negatives"] == 1
    sampler = open_samplers(corpus, negatives, 2, 200, 1, Context(tmp_path, "cpu", quiet=True))["train"]
    groups = sampler.draw(np.arange(2), np.zeros(2, np.int64))
    assert groups.rows_BK[:, 0].tolist() == [0, 1] and set(groups.rows_BK[0, 1:]) < {2, 3, 4}
    assert groups.rows_BK[1].tolist() == [1, -1, -1]
