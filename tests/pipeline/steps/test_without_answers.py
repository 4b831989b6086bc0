"""Negatives without any of the query's answers (SimLM Appendix B), from every source that mining mixes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stillhouse.core.artifacts import whole_folder, write_manifest
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus, write_tables
from stillhouse.training.negatives import Negatives

Run = Callable[..., dict[str, Path]]


@pytest.fixture
def answered(small_corpus: Path, tmp_path: Path) -> Path:
    """Return the small corpus with answers: that of each even query is the colour that it asks about."""
    corpus = Corpus.open(small_corpus)
    asked = corpus.queries.iloc[::2]
    answers = {
        "query_id": list(asked["query_id"]),
        "answer": [text.split()[3].upper() for text in asked["text"]],
        "kind": ["text"] * len(asked),
        "split": list(asked["split"]),
    }
    tables = {name: getattr(corpus, name).to_dict("list") for name in ("passages", "queries", "qrels")}
    with whole_folder(tmp_path / "answered") as folder:
        write_tables(folder, tables | {"answers": answers})
        write_manifest(folder, "ingest", {}, {}, {"passages": len(corpus.passages)})
    return tmp_path / "answered"


def assert_without_answers(corpus: Corpus, negatives: Negatives) -> None:
    texts = corpus.passages["text"].to_numpy()
    found = 0
    for number, row in enumerate(np.asarray(negatives.rows_QD)):
        colour = corpus.queries["text"].iloc[number].split()[3]
        held = [colour in texts[passage].split() for passage in row if passage >= 0]
        assert held, "some are left"
        if number % 2 == 0:
            assert not any(held)
        found += sum(held)
    assert found, "queries without answers keep such passages"


def test_lexical_and_mined_negatives_hold_no_answer(run_step: Run, answered: Path, tiny_model: Path) -> None:
    corpus = Corpus.open(answered)
    lexical = run_step("bm25", {"corpus": answered}, negatives_depth=20, without_answers=True)["negatives"]
    assert_without_answers(corpus, Negatives.read(lexical))

    unfiltered = run_step("bm25", {"corpus": answered}, "unfiltered", negatives_depth=20)["negatives"]
    settings = {"model": str(tiny_model), "pooling": "mean", "query_length": 16, "passage_length": 24}
    base = run_step("fetch-model", {}, **settings)["encoder"]
    index = run_step("index", {"corpus": answered, "retriever": base}, precision="fp32")["index"]
    inputs = {"corpus": answered, "retriever": base, "index": index, "others": unfiltered}
    mixed = {"negatives_depth": 6, "others_depth": 4, "random_negatives": 3, "precision": "fp32"}
    mined = run_step("mine", inputs, without_answers=True, **mixed)["negatives"]
    assert_without_answers(corpus, Negatives.read(mined))


def test_a_corpus_without_answers_is_refused(run_step: Run, small_corpus: Path) -> None:
    with pytest.raises(InputError, match="without_answers: the corpus has no answers of train and dev queries"):
        run_step("bm25", {"corpus": small_corpus}, without_answers=True)
