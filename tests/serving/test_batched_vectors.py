"""A vector in fp32 is the same to the last bit whoever else asks at the same time; in bf16, up to rounding."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel
from word_pieces import SPECIAL, save_tokenizer

from stillhouse.context import Context
from stillhouse.retrieval.models.encoder import BiEncoder
from stillhouse.retrieval.models.encoder_settings import EncoderSettings
from stillhouse.retrieval.models.query_encoder import AnyEncoder, PlainBert
from stillhouse.retrieval.models.towers import BagOfWordsTower
from stillhouse.serving.batch_encoder import PackedBert, TowerEncoder

LENGTHS = (1, 2, 3, 5, 7, 9, 11, 13, 20, 3, 4)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> PlainBert:
    """A model so wide that products of one row round differently from those of eight."""
    tmp_path = tmp_path_factory.mktemp("plain")
    save_tokenizer(tmp_path, [*SPECIAL, *(f"w{n}" for n in range(90))])
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(SPECIAL) + 90,
        hidden_size=384,
        num_hidden_layers=2,
        num_attention_heads=6,
        intermediate_size=1536,
    )
    model = BertModel(config)
    for parameter in model.parameters():
        if parameter.dim() == 2:
            parameter.data.mul_(3)
    model.save_pretrained(tmp_path)
    return PlainBert(tmp_path, EncoderSettings(), torch.device("cpu"))


def some_ids(lengths: Sequence[int] = LENGTHS) -> list[list[int]]:
    random = np.random.default_rng(0)
    return [random.integers(len(SPECIAL), len(SPECIAL) + 90, length).tolist() for length in lengths]


def test_a_text_alone_and_among_others_has_one_vector(plain: PlainBert) -> None:
    """Rows are filled up to a multiple of eight."""
    encoder = PackedBert(plain)
    alone_QD = np.concatenate([encoder.vectors([each]) for each in some_ids()])
    assert np.array_equal(encoder.vectors(some_ids()), alone_QD)


def test_in_bf16_a_batch_changes_a_vector_only_by_rounding(plain: PlainBert) -> None:
    """A processor with AMX adds up the products of a few rows in a different order than those of many."""
    encoder = PackedBert(plain, torch.bfloat16)
    alone_QD = np.concatenate([encoder.vectors([each]) for each in some_ids()])
    found_QD = encoder.vectors(some_ids())
    assert np.abs(found_QD - alone_QD).max() < 2**-8
    assert (found_QD * alone_QD).sum(1).min() > 0.9999


@pytest.mark.parametrize(("dtype", "least"), [(torch.float32, 0.999999), (torch.bfloat16, 0.9999)])
def test_vectors_are_those_of_the_plain_model(plain: PlainBert, dtype: torch.dtype, least: float) -> None:
    """In fp32 the vectors are equal up to rounding. In bf16 they differ within the precision of eight bits."""
    ids = some_ids()
    plain.tokens = GivenTokens(ids)
    expected_QD = plain.vectors([""] * len(ids))
    found_QD = PackedBert(plain, dtype).vectors(ids)
    cosines_Q = (found_QD.astype(np.float64) * expected_QD).sum(axis=1)
    assert cosines_Q.min() > least
    assert (cosines_Q.min() > 0.999999) == (dtype == torch.float32)


def test_states_of_tokens_of_any_retriever_are_what_it_pools(tiny_model: Path) -> None:
    """With separate towers, those of the role; of a bag of words, the embeddings of its words."""
    torch.manual_seed(0)
    bert = BiEncoder.load(tiny_model, pooling="mean", normalize=False, towers="separate")
    for parameter in bert.tower("query").parameters():
        parameter.data.add_(0.01 * torch.randn_like(parameter))
    bow = BagOfWordsTower(len(bert.tokenizer), (), 16)
    bag = BiEncoder({"passage": bow}, bert.tokenizer, EncoderSettings(normalize=False))
    for model, role in itertools.product((bert, bag), ("query", "passage")):
        given = SimpleNamespace(encoder=model, context=Context(tiny_model, "cpu", quiet=True))
        encoder = TowerEncoder(cast(AnyEncoder, given), role)
        ids = encoder.tokenize(["the red bird", "one fish sings in the tree"])
        pooled_QD = torch.stack([torch.tensor(encoder.token_states(each)).mean(0) for each in ids])
        if model is bag:
            pooled_QD = bow.output(torch.tanh(bow.hidden(pooled_QD))).detach()
        np.testing.assert_allclose(pooled_QD, encoder.vectors(ids), atol=1e-5)


class GivenTokens:
    def __init__(self, ids: list[list[int]]) -> None:
        self._ids = ids

    def cut(self, texts: Sequence[str]) -> list[list[int]]:
        return self._ids
