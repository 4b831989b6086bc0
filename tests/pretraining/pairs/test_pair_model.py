"""The two towers: what is shared, what is trained, and the bag of words compared with NumPy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForMaskedLM, PreTrainedModel

from stillhouse.models.towers import BagOfWordsTower
from stillhouse.pretraining.pairs.batch import PairBatch
from stillhouse.pretraining.pairs.model import PairPretraining
from stillhouse.pretraining.pairs.settings import PairConfig
from stillhouse.pretraining.tokens import SpecialTokens

CONFIG = PairConfig(query_length=16, passage_length=32, projection=6)
SPECIALS = SpecialTokens(cls=2, sep=3, pad=0, mask=4, all=(0, 1, 2, 3, 4))


@pytest.fixture
def model(tiny_model: Path) -> PreTrainedModel:
    torch.manual_seed(0)
    loaded: PreTrainedModel = AutoModelForMaskedLM.from_pretrained(tiny_model)
    return loaded.eval()


def batch() -> PairBatch:
    rng = np.random.default_rng(0)
    sides = []
    for length in (5, 9):
        lengths = rng.integers(3, length + 1, size=4)
        attention = torch.tensor(np.arange(length) < lengths[:, None])
        ids = torch.tensor(rng.integers(5, 27, size=(4, length))).masked_fill(~attention, 0)
        ids[:, 0] = 2
        sides += [ids, attention]
    rows = torch.tensor([7, 8, 9, 7])
    log_q = torch.log(torch.tensor([0.1, 0.2, 0.3, 0.1]))
    return PairBatch(*sides, torch.zeros(4, dtype=torch.int64), rows, rows, log_q)


@pytest.mark.parametrize(("towers", "encoder"), [("shared", "transformer"), ("separate", "transformer"),
                                                 ("shared", "bow_mlp"), ("separate", "bow_mlp")])  # fmt: skip
def test_shared_towers_are_one_and_separate_ones_part(model: PreTrainedModel, towers: str, encoder: str) -> None:
    pairs = PairPretraining(model, "cls", replace(CONFIG, towers=towers, pair_encoder=encoder), SPECIALS).eval()
    data = batch()
    before = pairs.queries(data.query_ids_BL, data.query_attention_BL)
    assert torch.equal(before, pairs.passages(data.query_ids_BL, data.query_attention_BL))
    optimizer = torch.optim.SGD(pairs.parameters(), lr=0.5)
    loss = pairs(data)
    loss.backward()
    assert all(parameter.grad is not None for name, parameter in pairs.named_parameters() if "pooler" not in name)
    optimizer.step()
    assert float(pairs(data).detach()) < float(loss.detach())
    query, passage = (side(data.query_ids_BL, data.query_attention_BL) for side in (pairs.queries, pairs.passages))
    assert torch.equal(query, passage) == (towers == "shared")
    assert not torch.allclose(query, before)


def test_bag_of_words_is_a_mean_and_two_layers() -> None:
    torch.manual_seed(0)
    tower = BagOfWordsTower(27, (2, 3, 0), width=4, embedding=8, hidden=5)
    ids = torch.tensor([[2, 9, 9, 12, 3, 0], [2, 1, 7, 3, 6, 3], [2, 3, 0, 0, 0, 0]])
    found = tower(ids, ids != 0).detach().numpy()
    tables = {name: value.detach().double().numpy() for name, value in tower.named_parameters()}
    for row, words in zip(found, ([9, 9, 12], [1, 7, 6], [])):
        bag = np.mean([tables["embedding.weight"][word] for word in words], axis=0) if words else np.zeros(8)
        hidden = np.tanh(tables["hidden.weight"] @ bag + tables["hidden.bias"])
        np.testing.assert_allclose(row, tables["output.weight"] @ hidden + tables["output.bias"], atol=1e-6)


def test_bag_of_words_has_the_papers_size() -> None:
    with torch.device("meta"):
        tower = BagOfWordsTower(30522, (0, 1, 2), width=512)
    assert abs(sum(parameter.numel() for parameter in tower.parameters()) / 128e6 - 1) < 0.01
