"""A vector in fp32 is the same to the last bit whoever else asks at the same time; in bf16, up to rounding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel
from word_pieces import SPECIAL, save_tokenizer

from stillhouse.models.encoder_settings import EncoderSettings
from stillhouse.models.query_encoder import PlainBert, query_tokens
from stillhouse.models.towers import Role

ROLES: tuple[Role, ...] = ("query", "passage")
LENGTHS = (1, 2, 3, 5, 7, 9, 11, 13, 20, 3, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model so wide that products of one row round differently from those of eight."""
    tmp_path = tmp_path_factory.mktemp("plain")
    save_tokenizer(tmp_path, [*SPECIAL, *(f"w{n}" for n in range(90))])
    torch.manual_seed(0)
    sizes = {"hidden_size": 384, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 1536}
    model = BertModel(BertConfig(vocab_size=len(SPECIAL) + 90, **sizes))
    for parameter in model.parameters():
        if parameter.dim() == 2:
            parameter.data.mul_(3)
    model.save_pretrained(tmp_path)
    return tmp_path


def bert(folder: Path, dtype: torch.dtype = torch.float32) -> PlainBert:
    tokens = query_tokens(folder, 32, "")
    return PlainBert(folder, EncoderSettings(), torch.device("cpu"), tokens, dtype)


def some_ids(lengths: Sequence[int] = LENGTHS) -> list[list[int]]:
    random = np.random.default_rng(0)
    return [random.integers(len(SPECIAL), len(SPECIAL) + 90, length).tolist() for length in lengths]


def test_a_text_alone_and_among_others_has_one_vector(folder: Path) -> None:
    """Rows are filled up to a multiple of eight."""
    encoder = bert(folder)
    alone_QD = np.concatenate([encoder.vectors([each]) for each in some_ids()])
    assert np.array_equal(encoder.vectors(some_ids()), alone_QD)


def test_in_bf16_a_batch_changes_a_vector_only_by_rounding(folder: Path) -> None:
    """A processor with AMX adds up the products of a few rows in a different order than those of many."""
    encoder = bert(folder, torch.bfloat16)
    alone_QD = np.concatenate([encoder.vectors([each]) for each in some_ids()])
    found_QD = encoder.vectors(some_ids())
    assert np.abs(found_QD - alone_QD).max() < 2**-8
    assert (found_QD * alone_QD).sum(1).min() > 0.9999


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_vectors_are_those_of_transformers(folder: Path, dtype: torch.dtype) -> None:
    """In fp32 to 1e-5. In bf16 they differ within the precision of eight bits."""
    model = BertModel.from_pretrained(folder).eval()
    with torch.inference_mode():
        states = [model(torch.tensor([ids])).last_hidden_state[0, 0] for ids in some_ids()]
    expected_QD = torch.nn.functional.normalize(torch.stack(states)).numpy()
    found_QD = bert(folder, dtype).vectors(some_ids())
    if dtype == torch.float32:
        np.testing.assert_allclose(found_QD, expected_QD, atol=1e-5, rtol=0)
    assert (found_QD.astype(np.float64) * expected_QD).sum(axis=1).min() > 0.9999
    assert (np.abs(found_QD - expected_QD).max() < 1e-5) == (dtype == torch.float32)
