"""Late interaction with a tiny model, compared with transformers' own hidden states, token by token in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from stillhouse.core.artifacts import whole_folder, write_json, write_manifest
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.evaluation.runs import read_run
from stillhouse.models.encoder import BiEncoder
from stillhouse.models.query_encoder import AnyEncoder, PlainBert, open_query_encoder
from stillhouse.models.settings import InferenceConfig
from stillhouse.models.token_states import TokenReader
from stillhouse.search.hybrid import Fusion
from stillhouse.search.late_interaction import ENDS, SIGNS, WEIGHTS, LateInteraction, write_tokens
from stillhouse.search.searcher import Searcher

Run = Callable[..., dict[str, Path]]
EXACT = InferenceConfig(precision="fp32")


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path, "cpu", quiet=True)


def slow_scores(
    folder: Path, queries: list[str], passages: list[str], prompt: str = "", weighted: bool = True
) -> np.ndarray:
    """Every query's score with every passage, float64 [Q, N], one text and one token at a time."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).double().eval()

    def states(text: str, length: int) -> list[np.ndarray]:
        with torch.no_grad():
            read = model(**tokenizer(text, truncation=True, max_length=length, return_tensors="pt"))
        return [state / np.linalg.norm(state) for state in read.last_hidden_state[0].numpy()]

    def cosine(state: np.ndarray, stored: np.ndarray) -> float:
        signs = np.where(stored > 0, 1.0, -1.0)
        return float(state @ signs / np.linalg.norm(signs))

    stored = [states(prompt + passage, 24) for passage in passages]
    prompted = len(tokenizer(prompt, add_special_tokens=False).input_ids)
    read = [tokenizer(prompt + passage, truncation=True, max_length=24).input_ids for passage in passages]
    known = [set(ids[1 + prompted :]) for ids in read]

    def weights(query: str) -> list[float]:
        ids = tokenizer(query, truncation=True, max_length=16).input_ids
        found = [sum(id in of for of in known) for id in ids]
        rarity = [math.sqrt(math.log(1 + (len(known) - count + 0.5) / (count + 0.5))) for count in found]
        counts = [id not in tokenizer.all_special_ids and place > prompted for place, id in enumerate(ids)]
        return [rare * counted if weighted else 1.0 for rare, counted in zip(rarity, counts)]

    def score(query: str, tokens: list[np.ndarray]) -> float:
        best = [max(cosine(own, other) for other in tokens) for own in states(prompt + query, 16)]
        return float(np.average(best, weights=weights(prompt + query)))

    return np.array([[score(query, tokens) for tokens in stored] for query in queries])


def test_a_score_is_the_mean_of_each_tokens_best_cosine_by_rarity(
    small_corpus: Path, retriever: Path, tmp_path: Path, context: Context
) -> None:
    corpus, encoder = Corpus.open(small_corpus), BiEncoder.load(retriever)
    write_tokens(tmp_path / "tokens", encoder, corpus, context, EXACT)
    queries = corpus.queries_of("test")["text"].tolist()
    rows_QK = np.array([np.random.default_rng(seed).permutation(24) for seed in range(len(queries))], dtype=np.int32)
    rows_QK[0, 20:] = -1
    slow_QN = slow_scores(retriever, queries, passage_texts(corpus))
    slow_QK = np.take_along_axis(slow_QN, np.maximum(rows_QK, 0), axis=1)
    slow_QK[0, 20:] = slow_QK[0, :20].min()
    plain = open_query_encoder(retriever, context)
    assert isinstance(plain, PlainBert)
    ends_N = np.load(tmp_path / "tokens" / ENDS)
    np.save(tmp_path / "tokens" / ENDS, np.append(ends_N, ends_N[-1]))  # and a passage without a token
    rows_QK[1, 7], slow_QK[1, 7] = 24, np.inf
    slow_QK[1, 7] = slow_QK[1].min()
    for reader in (TokenReader(encoder, context, EXACT), plain, AnyEncoder(retriever, context)):
        scores_QK = LateInteraction(tmp_path / "tokens", reader).scores_of(queries, rows_QK)
        np.testing.assert_allclose(scores_QK, slow_QK, atol=1e-5)
    empty_QK = LateInteraction(tmp_path / "tokens", plain).scores_of([""], rows_QK[:1])
    assert np.isfinite(empty_QK).all(), "where no token counts, all do"
    (tmp_path / "tokens" / SIGNS).write_bytes(b"cut off")
    with pytest.raises(InputError, match="select-best"):
        LateInteraction(tmp_path / "tokens", plain)


@pytest.mark.parametrize(("prompt", "weighted"), [("find the ", True), ("", False)])
def test_a_prompt_does_not_count_and_without_weights_all_tokens_do(
    small_corpus: Path, retriever: Path, tmp_path: Path, context: Context, prompt: str, weighted: bool
) -> None:
    corpus, encoder = Corpus.open(small_corpus), BiEncoder.load(retriever, query_prompt=prompt, passage_prompt=prompt)
    write_tokens(tmp_path / "tokens", encoder, corpus, context, EXACT)
    if not weighted:
        (tmp_path / "tokens" / WEIGHTS).unlink()
    queries = corpus.queries_of("test")["text"].tolist()
    rows_QK = np.tile(np.arange(24, dtype=np.int32), (len(queries), 1))
    scores_QK = LateInteraction(tmp_path / "tokens", TokenReader(encoder, context, EXACT)).scores_of(queries, rows_QK)
    slow_QK = slow_scores(retriever, queries, passage_texts(corpus), prompt, weighted)
    np.testing.assert_allclose(scores_QK, slow_QK, atol=1e-5)


def test_a_search_adds_late_interaction_with_its_weight(
    run_step: Run, small_corpus: Path, dense: dict[str, Path], bm25: Path, tmp_path: Path, context: Context
) -> None:
    fused = {}
    for late in (0.0, 3.0):
        weights = tmp_path / f"weights {late}"
        with whole_folder(weights) as staging:
            write_json(staging / "hybrid.json", asdict(Fusion("weights", 0.125, 2.0, 24, late)))
            write_manifest(staging, "hybrid", {}, {}, {})
        inputs = {**dense, "bm25": bm25, "weights": weights}
        fused[late] = run_step("hybrid", inputs, f"hybrid {late}", precision="fp32")["hybrid"]
    inputs = {**dense, "hybrid": fused[3.0]}
    run = read_run(run_step("retrieve", inputs, depth=24, precision="fp32")["run"] / "test.trec")
    corpus = Corpus.open(small_corpus)
    asked = corpus.queries_of("test")
    late_QN = slow_scores(dense["retriever"], asked["text"].tolist(), passage_texts(corpus))
    ids = corpus.passage_ids[np.arange(24)].tolist()
    folders = (dense["corpus"], dense["retriever"], dense["index"])
    without, searcher = (Searcher(*folders, context, hybrid=fused[late]) for late in (0.0, 3.0))
    for number, (query_id, text) in enumerate(asked[["query_id", "text"]].to_numpy().tolist()):
        hits, lines = searcher.search(text, 24), run[run["query_id"] == query_id]
        assert [hit.passage_id for hit in hits] == lines["passage_id"].tolist()
        two = {hit.passage_id: hit.score for hit in without.search(text, 24)}
        slow = [two[hit.passage_id] + 3.0 * late_QN[number, ids.index(hit.passage_id)] for hit in hits]
        assert [hit.score for hit in hits] == pytest.approx(slow, abs=2e-4)
        assert lines["score"].tolist() == pytest.approx(slow, abs=2e-4)
