"""A corpus with `titles: sep` in every step that reads passages, and a retriever that records it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel

from stillhouse.core.artifacts import read_manifest, whole_folder, write_manifest
from stillhouse.core.context import Context
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.runs import read_run
from stillhouse.models.encoder_settings import read_settings
from stillhouse.models.tokenizer_files import load_tokenizer
from stillhouse.pretraining.tokens import SpecialTokens, TokenCache
from stillhouse.search.searcher import Searcher

Run = Callable[..., dict[str, Path]]
EXACT = {"precision": "fp32"}
TUNING = {"max_steps": 2, "batch_size": 4, "negatives_per_query": 1, "negatives_depth": 4, **EXACT}


@pytest.fixture
def read_as(small_corpus: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that copies the small corpus with another value of `titles`."""

    def copied(titles: str) -> Path:
        made = read_manifest(small_corpus)
        with whole_folder(tmp_path / "read" / titles) as staging:
            for path in small_corpus.glob("*.parquet"):
                shutil.copy(path, staging)
            write_manifest(staging, made.step, made.config, made.inputs, made.facts | {"titles": titles})
        return tmp_path / "read" / titles

    return copied


def test_every_step_reads_the_pair(
    read_as: Callable[[str], Path],
    tiny_model: Path,
    retriever: Path,
    run_step: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    corpus = {"corpus": read_as("sep")}
    lexical = run_step("bm25", corpus, negatives_depth=5)
    spaced = run_step("bm25", {"corpus": read_as("space")}, "spaced", negatives_depth=5)
    assert (lexical["run"] / "test.trec").read_bytes() == (spaced["run"] / "test.trec").read_bytes()

    inputs = {**corpus, "encoder": retriever, "negatives": lexical["negatives"]}
    trained = run_step("train-retriever", inputs, **TUNING)["retriever"]
    assert (read_settings(retriever).titles, read_settings(trained).titles) == ("", "sep")
    index = run_step("index", {**corpus, "retriever": trained}, **EXACT)["index"]
    found = {**corpus, "retriever": trained, "index": index}
    run = read_run(run_step("retrieve", found, depth=24, **EXACT)["run"] / "test.trec")

    opened, model, tokenizer = (
        Corpus.open(corpus["corpus"]),
        AutoModel.from_pretrained(trained),
        load_tokenizer(trained),
    )

    def vector(*texts: str, length: int) -> np.ndarray:
        tokens = tokenizer(*texts, truncation=True, max_length=length, return_tensors="pt", return_token_type_ids=False)
        with torch.inference_mode():
            return torch.nn.functional.normalize(model.eval()(**tokens).last_hidden_state.mean(1))[0].numpy()

    passages = opened.passages
    vectors = np.stack([vector(*both, length=24) for both in zip(passages["title"], passages["text"])])
    queries = opened.queries_of("test")
    for id, text in zip(queries["query_id"], queries["text"]):
        expected = np.sort(vectors @ vector(text, length=16))[::-1]
        np.testing.assert_allclose(run[run["query_id"] == id]["score"], expected, atol=1e-5)
    searcher = Searcher(corpus["corpus"], trained, index, Context(tmp_path, "cpu", quiet=True))
    [hit] = searcher.search(str(queries["text"].iloc[0]), top=1)
    assert hit.score == pytest.approx(float(run["score"].iloc[0]), abs=1e-5)
    assert "\x1f" not in f"{hit.title}{hit.text}"

    mined = run_step("mine", found, negatives_depth=4, **EXACT)["negatives"]
    reranker_inputs = {**corpus, "negatives": mined, "init": tiny_model}
    settings = {"max_steps": 2, "batch_size": 2, "max_length": 32, **EXACT}
    reranker = run_step("train-reranker", reranker_inputs, **settings)["reranker"]
    run_step("rerank", {**corpus, "reranker": reranker, "candidates": tmp_path / "retrieve" / "run"}, depth=4, **EXACT)

    # If another corpus is encoded, the log says what differs.
    monkeypatch.setenv("STILLHOUSE_QUIET", "0")
    capsys.readouterr()
    run_step("index", {"corpus": read_as("colon"), "retriever": trained}, "colon", **EXACT)
    assert "trained on passages with `titles: sep`, but this corpus has `titles: colon`" in capsys.readouterr().err


def test_pretraining_reads_the_separator_and_never_corrupts_it(
    read_as: Callable[[str], Path], tiny_model: Path, run_step: Run
) -> None:
    corpus = read_as("sep")
    tokens = run_step("tokenize", {"corpus": corpus, "tokenizer": tiny_model}, max_length=32)["tokens"]
    tokenizer, passages = load_tokenizer(tiny_model), Corpus.open(corpus).passages
    ids, offsets = np.load(tokens / "ids.npy"), np.load(tokens / "offsets.npy")
    for row, both in enumerate(zip(passages["title"], passages["text"])):
        assert ids[offsets[row] : offsets[row + 1]].tolist() == tokenizer(*both)["input_ids"][1:-1]
    counts = run_step("count", {"tokens": tokens})["counts"]
    importance = run_step("importance", {"tokens": tokens, "counts": counts})["importance"]
    assert len(np.load(importance / "ami.npy")) == len(ids)
    separators = TokenCache.open(tokens, SpecialTokens.of(tokenizer)).batch(np.arange(24), 32)
    assert separators.special[separators.ids == tokenizer.sep_token_id].all()
