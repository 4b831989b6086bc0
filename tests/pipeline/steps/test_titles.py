"""`titles` of `ingest`: set once, recorded in the corpus, and followed by every reader of passages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from beir_source import write_beir

from stillhouse.core.artifacts import read_manifest
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.pipeline.steps import bm25, ingest, tokenize
from stillhouse.pipeline.steps.execute import execute

READ = {"space": "red bird", "colon": "red: bird", "line": "red\nbird", "sep": "red\x1fbird", "left_out": "bird"}


def ingested(folder: Path, titles: str) -> Path:
    rows = [
        {"_id": "a", "title": "red", "text": "bird"},
        {"_id": "b", "text": "red fish"},
        {"_id": "c", "text": "tree"},
    ]
    source = write_beir(folder / "source", rows, {"q": "red", "r": "fish"}, test=[("q", "a"), ("r", "b")])
    config = ingest.STEP.config(source=str(source), titles=titles, queries="source")
    execute(ingest.STEP, config, {}, {"corpus": folder / "corpus"})
    return folder / "corpus"


@pytest.mark.parametrize("titles", READ)
def test_texts_are_read_as_the_corpus_says(titles: str, tmp_path: Path, tiny_model: Path) -> None:
    folder = ingested(tmp_path, titles)
    assert read_manifest(folder).facts["titles"] == titles
    before = "\x1f" * (titles == "sep")
    assert passage_texts(Corpus.open(folder)) == [READ[titles], f"{before}red fish", f"{before}tree"]
    # BM25 finds the first passage by the word of its title, or not at all.
    execute(
        bm25.STEP, bm25.Config(), {"corpus": folder}, {port.name: tmp_path / port.name for port in bm25.STEP.outputs}
    )
    found = [line.split()[2] for line in (tmp_path / "run" / "test.trec").read_text().splitlines() if line[:2] == "q "]
    assert ("a" in found, "b" in found) == (titles != "left_out", True)
    # The token between title and text belongs to the title.
    inputs = {"corpus": folder, "tokenizer": tiny_model}
    execute(tokenize.STEP, tokenize.Config(), inputs, {"tokens": tmp_path / "tokens"})
    lengths = np.load(tmp_path / "tokens" / "title_lengths.npy")
    assert lengths.tolist() == [{"colon": 2, "sep": 2, "left_out": 0}.get(titles, 1), 0, 0]
