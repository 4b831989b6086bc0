"""`fetch-model` takes a complete bag of words or draws one of the same sizes, for use in every step with vectors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from exact_ranking import check_training
from sentence_transformers import SentenceTransformer
from transformers import AutoTokenizer

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.models.encoder import BiEncoder
from stillhouse.models.encoder_settings import EncoderSettings
from stillhouse.models.towers import BagOfWordsTower, Role, Tower

Run = Callable[..., dict[str, Path]]
LENGTHS = {"query_length": 12, "passage_length": 20}
TUNING = {"max_steps": 3, "batch_size": 4, "negatives_per_query": 2, "negatives_depth": 4, "learning_rate": 0.01}
TUNING |= {"precision": "fp32"}


def written(tiny_model: Path, folder: Path, towers: str = "shared") -> Path:
    """Write a bag of words as `pretrain` does."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_model, local_files_only=True)
    torch.manual_seed(3)
    roles: tuple[Role, ...] = ("passage", "query") if towers == "separate" else ("passage",)
    bags: dict[Role, Tower] = {
        role: BagOfWordsTower(len(tokenizer), (2, 3, 0), width=6, embedding=16, hidden=8) for role in roles
    }
    settings = EncoderSettings("mean", query_length=16, passage_length=32, projection=6, towers=towers)
    BiEncoder(bags, tokenizer, settings).save(folder)
    return folder


@pytest.mark.parametrize("towers", ["shared", "separate"])
def test_a_fetched_bag_runs_through_every_step(
    run_step: Run, small_corpus: Path, tiny_model: Path, tmp_path: Path, towers: str
) -> None:
    own = written(tiny_model, tmp_path / "own", towers)
    start = run_step("fetch-model", {}, model=str(own), **LENGTHS)["encoder"]
    before, fetched = BiEncoder.load(own), BiEncoder.load(start)
    assert all(before.state_dict()[name].equal(value) for name, value in fetched.state_dict().items())
    assert (fetched.settings.query_length, fetched.settings.passage_length) == (12, 20)
    facts = read_manifest(start).facts
    assert facts["lm_head"] == "absent" and facts["width"] == 6
    assert facts["parameters"] == (2 if towers == "separate" else 1) * (len(fetched.tokenizer) * 16 + 17 * 8 + 9 * 6)

    retriever = check_training(run_step, small_corpus, start, TUNING, tmp_path)["retriever"]
    vectors = run_step("encode", {"corpus": small_corpus, "retriever": retriever}, precision="fp32")["vectors"]
    opened, model = Corpus.open(small_corpus), SentenceTransformer(str(retriever), device="cpu")
    passages_ND = model.encode_document(passage_texts(opened))
    np.testing.assert_allclose(np.load(vectors / "passages.vectors.npy"), passages_ND, atol=1e-5)


def test_where_a_transformer_is_needed_a_fetched_bag_is_refused(
    run_step: Run, small_corpus: Path, tiny_model: Path, tmp_path: Path
) -> None:
    start = run_step("fetch-model", {}, model=str(written(tiny_model, tmp_path / "own")), **LENGTHS)["encoder"]
    none = run_step("fetch-model", {}, "none", model="none")["encoder"]
    negatives = run_step("bm25", {"corpus": small_corpus}, negatives_depth=5)["negatives"]
    tokens = run_step("tokenize", {"corpus": small_corpus, "tokenizer": start}, max_length=20)["tokens"]
    for step, inputs, settings in (
        ("pretrain", {"tokens": tokens, "init": start}, {"objective": "mlm", "max_length": 20}),
        ("train-reranker", {"corpus": small_corpus, "negatives": negatives, "init": start}, {"max_length": 20}),
        # A re-ranker without its own base model starts from the common one.
        ("train-reranker", {"corpus": small_corpus, "negatives": negatives, "init": none, "encoder": start}, {}),
    ):
        with pytest.raises(InputError, match=r"is a bag of words \(bow_mlp\).*; give a Transformer, such as"):
            run_step(step, inputs, "refused", **settings)
