"""The signals, compared with slow versions and with cases worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from small_bert import small_bert
from transformers import BertForMaskedLM

from stillhouse.pretraining.corrupted import Corrupted, CorruptedBatch
from stillhouse.pretraining.pairs.batch import PairBatch
from stillhouse.pretraining.signals import COVERAGE, ICT, MLM_LOSS, Signals, token_coverage


@pytest.fixture(scope="module")
def model() -> BertForMaskedLM:
    return small_bert(30, 16).eval()


def batch() -> CorruptedBatch:
    ids = torch.tensor([[2, 10, 11, 12, 10, 3], [2, 20, 21, 3, 0, 0]])
    attention = ids != 0
    special = ids < 5
    mask = torch.zeros_like(special)
    mask[[0, 0, 1], [1, 3, 2]] = True
    return CorruptedBatch(ids, attention, special, Corrupted(ids.masked_fill(mask, 4), mask), None)


def test_token_coverage_by_hand() -> None:
    """The text has tokens 5 and 7 of 8. The vector ranks 7, 0, 5, ...: 1 of 2 at k = 1 and 2, both at k = 3."""
    logits = torch.tensor([[8.0, 1, 2, 3, 4, 7, 0, 9]])
    ids, special = torch.tensor([[1, 5, 7, 7, 2, 0]]), torch.tensor([[True, False, False, False, True, True]])
    shares = token_coverage(logits, ids, special, [1, 2, 3, 50])
    assert [float(share[0]) for share in shares] == [0.5, 0.5, 1.0, 1.0]
    with_zero = token_coverage(logits, ids, torch.tensor([[True, False, False, False, True, False]]), [2])
    assert float(with_zero[0][0]) == pytest.approx(2 / 3)


def test_mlm_loss_and_coverage_against_the_models_own_logits(model: BertForMaskedLM) -> None:
    fixed = batch()
    signals = Signals(model, "cls", True, [fixed])
    with torch.no_grad():
        values = signals()
        logits = model(input_ids=fixed.encoder.ids_BL, attention_mask=fixed.attention_BL.long()).logits.double()
        states = model.bert(input_ids=fixed.ids_BL, attention_mask=fixed.attention_BL.long()).last_hidden_state
        projected = states[:, 0] @ model.bert.embeddings.word_embeddings.weight.T
    assert set(values) == {MLM_LOSS, COVERAGE}
    where = [(0, 1), (0, 3), (1, 2)]
    slow = -sum(float(logits[b, i].log_softmax(0)[fixed.ids_BL[b, i]]) for b, i in where) / 3
    assert values[MLM_LOSS] == pytest.approx(slow, abs=1e-5)
    bags = [{10, 11, 12}, {20, 21}]
    shares = [
        len(bag & set(row.argsort(descending=True)[:20].tolist())) / len(bag) for bag, row in zip(bags, projected)
    ]
    assert values[COVERAGE] == pytest.approx(sum(shares) / 2)
    with torch.no_grad():
        ids, top, hits = signals.nearest_tokens(2, 30)
    assert ids.tolist() == fixed.ids_BL.tolist()
    assert top.tolist() == projected.argsort(dim=1, descending=True).tolist()
    slow_hits = [[token in bag for token in row] for bag, row in zip(bags, top.tolist())]
    assert hits.tolist() == slow_hits, "by id, and neither special tokens nor padding"


def test_ict_ranks_the_rest_of_each_passage(model: BertForMaskedLM) -> None:
    torch.manual_seed(1)
    queries, passages = torch.randint(5, 30, (12, 4)), torch.randint(5, 30, (12, 9))
    pairs = PairBatch(queries, queries > 0, passages, passages > 0, *[torch.zeros(12)] * 4)
    with torch.no_grad():
        value = Signals(model, "mean", True, [batch()], [pairs])()[ICT]
        vectors = [
            model.bert(input_ids=text, attention_mask=(text > 0).long()).last_hidden_state.double().mean(1)
            for text in (queries, passages)
        ]
    total = 0.0
    for number, query in enumerate(vectors[0]):
        cosines = [float(query @ other / math.sqrt(query @ query) / math.sqrt(other @ other)) for other in vectors[1]]
        rank = 1 + sorted(cosines, reverse=True).index(cosines[number])
        total += 1 / rank if rank <= 10 else 0.0
    assert value == pytest.approx(total / 12)
