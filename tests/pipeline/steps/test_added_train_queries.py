"""Train queries from a separate folder join the corpus, and no dev or test query is trained on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from beir_source import write_beir

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.relevance import JudgedQueries
from stillhouse.pipeline.steps.execute import execute
from stillhouse.pipeline.steps.registry import find_step


@pytest.fixture
def source(tmp_path: Path) -> Path:
    queries = {"q1": "red bird", "q2": "blue fish", "q3": "green tree", "q4": "old stone"}
    passages = [f"passage {n} says a word of its own" for n in range(9)]
    return write_beir(tmp_path / "source", passages, queries, train=[1, 4], dev=[2], test=[3])


@pytest.fixture
def ingest(source: Path, tmp_path: Path) -> Callable[..., Corpus]:
    def run(**settings: Any) -> Corpus:
        step = find_step("ingest")
        execute(step, step.config(source=str(source), **settings), {}, {"corpus": tmp_path / "corpus"})
        return Corpus.open(tmp_path / "corpus")

    return run


def relevant(corpus: Corpus, split: str) -> set[tuple[str, str]]:
    return set(corpus.qrels_of(split)[["query_id", "passage_id"]].itertuples(index=False, name=None))


def test_added_queries_train_and_what_is_measured_stays(ingest: Callable[..., Corpus], tmp_path: Path) -> None:
    before = ingest()
    queries = {"f1": "a new one", "f2": "Blue  FISH", "f3": "green tree", "f4": "Red bird", "f5": "lost"}
    pairs = [("f1", "p5"), ("f1", "p6"), ("f2", "p7"), ("f3", "p3"), ("f4", "p8"), ("f4", "p1"), ("f5", "gone")]
    write_beir(tmp_path / "added", (), queries, train=[*pairs, ("f9", "p1")])
    after = ingest(train_queries=str(tmp_path / "added"))
    for split in ("dev", "test"):
        assert relevant(after, split) == relevant(before, split)
        assert list(after.queries_of(split)["text"]) == list(before.queries_of(split)["text"])
    assert relevant(after, "train") == relevant(before, "train") | {("f1", "p5"), ("f1", "p6"), ("q1", "p8")}
    train = after.queries_of("train").set_index("query_id")
    assert train.loc["f1", "text"] == "a new one" and train.loc["f1", "origin"] == "added"
    assert train.loc["q1", "origin"] == "source"
    facts = read_manifest(tmp_path / "corpus").facts
    assert facts["added_train_queries"] == 1
    assert facts["not_added"] == {
        "qrel: its query is a dev query": 1,
        "qrel: its query is a test query": 1,
        "qrel: known already": 1,
        "qrel: points to no passage": 1,
        "qrel: points to no query": 1,
    }


def test_articles_that_made_queries_are_measured_on_are_not_trained_on(tmp_path: Path) -> None:
    """If the source has no labels, its sentences are queries; dev and test use other articles than train."""
    step = find_step("ingest")
    plain = {"source": "sample", "queries": "pairs", "max_articles": 40}
    execute(step, step.config(**plain), {}, {"corpus": tmp_path / "before"})
    before = Corpus.open(tmp_path / "before")
    ids = list(before.passages["passage_id"])
    write_beir(
        tmp_path / "added",
        (),
        {f"f{n}": f"somebody asks {n}" for n in range(len(ids))},
        train=[(f"f{n}", id) for n, id in enumerate(ids)],
    )
    execute(step, step.config(**plain, train_queries=str(tmp_path / "added")), {}, {"corpus": tmp_path / "after"})
    after = Corpus.open(tmp_path / "after")
    article = after.passages.set_index("passage_id")["article_id"]
    labelled = set(after.queries["query_id"][after.queries["origin"] == "source"])  # these are measured separately
    of_split = {
        split: {article[passage] for query, passage in relevant(after, split) if query not in labelled}
        for split in ("train", "dev", "test")
    }
    assert of_split["train"] and not of_split["train"] & (of_split["dev"] | of_split["test"])
    assert relevant(after, "test") == relevant(before, "test")
    assert (after.queries_of("train")["origin"] == "added").any()


def test_another_folder_changes_the_corpus_and_one_without_qrels_is_refused(
    ingest: Callable[..., Corpus], tmp_path: Path
) -> None:
    write_beir(tmp_path / "added", (), {"f1": "new"}, train=[("f1", "p5")])
    ingest(train_queries=str(tmp_path / "added"))
    first = read_manifest(tmp_path / "corpus").facts["source_digest"]
    (tmp_path / "added" / "qrels" / "train.tsv").write_text("f1\tp6\t1\n")
    ingest(train_queries=str(tmp_path / "added"))
    assert read_manifest(tmp_path / "corpus").facts["source_digest"] != first
    (tmp_path / "added" / "qrels" / "train.tsv").unlink()
    with pytest.raises(InputError, match="queries export"):
        ingest(train_queries=str(tmp_path / "added"))


@pytest.mark.usefixtures("paragraphs_apart")
def test_only_the_held_out_runs_of_one_document_take_no_queries(tmp_path: Path) -> None:
    step, paragraphs = (
        find_step("ingest"),
        [f"The lever number {n} moves the part with the sign {n}." for n in range(60)],
    )
    (tmp_path / "manual.txt").write_text("\n\n".join(paragraphs), encoding="utf-8")
    plain = {"source": str(tmp_path / "manual.txt"), "pair_sentence_words": 4}
    execute(step, step.config(**plain), {}, {"corpus": tmp_path / "before"})
    before = Corpus.open(tmp_path / "before")
    ids = list(before.passages["passage_id"])
    queries = {f"f{n}": f"somebody asks {n}" for n in range(len(ids))}
    write_beir(tmp_path / "added", (), queries, train=[(f"f{n}", id) for n, id in enumerate(ids)])
    execute(step, step.config(**plain, train_queries=str(tmp_path / "added")), {}, {"corpus": tmp_path / "after"})
    facts = read_manifest(tmp_path / "after").facts
    parts = facts["articles_of_split"]
    assert sum(parts.values()) == 10 and len(ids) == 60
    assert facts["added_train_queries"] == 6 * parts["train"]
    assert facts["not_added"] == {"qrel: its article is held out for dev or test": 60 - 6 * parts["train"]}
    judged = JudgedQueries(before)
    assert len(judged) and (judged.judged(np.arange(60, dtype=np.int32)[None].repeat(len(judged), 0)).sum(1) > 55).all()
