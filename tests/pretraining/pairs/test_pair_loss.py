"""The loss of pair tasks: parts and gradient caching change neither loss nor gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from step_gradients import assert_same, gradients_of
from torch import Tensor
from transformers import AutoModelForMaskedLM

from stillhouse.models.towers import BagOfWordsTower
from stillhouse.pretraining.pairs import sampled_softmax
from stillhouse.pretraining.pairs.batch import PairBatch
from stillhouse.pretraining.pairs.model import PairPretraining
from stillhouse.pretraining.pairs.pair_loss import PairLoss
from stillhouse.pretraining.pairs.task import PairMaker
from stillhouse.pretraining.settings import PretrainingConfig
from stillhouse.pretraining.tokens import SpecialTokens

CPU = torch.device("cpu")
SPECIALS = SpecialTokens(cls=2, sep=3, pad=0, mask=4, all=(0, 1, 2, 3, 4))
SETTINGS: Mapping[str, Any] = {
    "objective": "ict+bfs",
    "query_length": 16,
    "passage_length": 32,
    "projection": 6,
    "precision": "fp32",
    "seed": 3,
}
PARTS = {"mini_batch_size": 2}
CACHED = {"mini_batch_size": 2, "gradient_cache": True}
PAIRS, STEP = 7, 5
SOURCES, TARGETS = [3, 4, 5, 6, 4, 8, 9], [3, 4, 5, 3, 7, 5, 9]
"""The passages of the pairs' queries and their targets: some targets are shared, some are another query's source."""
CASES: Mapping[str, Mapping[str, Any]] = {
    "shared towers": {},
    "separate towers": {"towers": "separate"},
    "separate towers, cosine, no projection": {
        "towers": "separate",
        "pair_normalize": True,
        "temperature": 0.1,
        "projection": None,
    },
    "no correction": {"correction": False},
    "bag of words": {"pair_encoder": "bow_mlp", "towers": "separate", "temperature": 0.05},
    "two pairs": {"pairs": 2},
}
"""Settings, and `pairs`, the number of pairs in the batch."""


class GivenPairs:
    """Stands in for a `PairMaker`: its pairs depend only on `rows`, not on random numbers."""

    device = CPU

    def draw(self, rows_B: np.ndarray, rng: np.random.Generator) -> PairBatch:
        random = np.random.default_rng(0)
        sides = []
        for longest in (5, 12):
            lengths = random.integers(3, longest + 1, size=PAIRS)
            attention = torch.tensor(np.arange(longest) < lengths[:, None])
            ids = torch.tensor(random.integers(5, 27, size=(PAIRS, longest))).masked_fill(~attention, 0)
            ids[:, 0] = 2
            sides += [ids[rows_B], attention[rows_B]]
        log_q = torch.tensor(np.log(random.dirichlet(np.ones(10))), dtype=torch.float32)
        source, target = torch.tensor(SOURCES)[rows_B], torch.tensor(TARGETS)[rows_B]
        return PairBatch(*sides, torch.zeros_like(source), source, target, log_q[target])

    def batch(self, drawn: PairBatch) -> PairBatch:
        return drawn


def open_loss(model: Path, case: Mapping[str, Any], **more: Any) -> tuple[PairLoss, PairPretraining, np.ndarray]:
    """The loss of a case, its towers, and the rows of its batch."""
    settings = {**SETTINGS, **case, **more}
    rows = np.arange(settings.pop("pairs", PAIRS))
    config = PretrainingConfig(**settings)
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patch:  # word embeddings of width 16 where the paper has 4,096
        patch.setattr(BagOfWordsTower.__init__, "__defaults__", (16, 8))
        towers = PairPretraining(AutoModelForMaskedLM.from_pretrained(model), "mean", config, SPECIALS)
    for tower in (towers.query_tower, towers.passage_tower):  # separate towers start equal, which would hide a mix-up
        for values in tower.parameters():
            values.data += 0.05 * torch.randn(values.shape)
    maker = cast(PairMaker, GivenPairs())
    return PairLoss(towers, maker, config, rows), towers, rows


def of_case(model: Path, name: str, dropout: bool, **more: Any) -> dict[str, Tensor]:
    loss, towers, rows = open_loss(model, CASES[name], **more)
    towers.train(dropout)
    return gradients_of(lambda: loss.training(loss.draw(rows, STEP), STEP), towers, STEP, "fp32", CPU)


def slow_gradients(model: Path, case: Mapping[str, Any]) -> dict[str, Tensor]:
    """Encode each text alone without dropout and compute Chang et al. eq. 3 pair by pair in float64."""
    _, towers, rows = open_loss(model, case)
    towers.eval()
    config, batch = towers.config, GivenPairs().draw(rows, np.random.default_rng())

    def vectors(tower: Any, ids_BL: Tensor, attention_BL: Tensor) -> list[Tensor]:
        alone = [tower(ids[kept][None], torch.ones(1, int(kept.sum())))[0] for ids, kept in zip(ids_BL, attention_BL)]
        return [(vector / vector.norm() if config.pair_normalize else vector).double() for vector in alone]

    queries = vectors(towers.query_tower, batch.query_ids_BL, batch.query_attention_BL)
    passages = vectors(towers.passage_tower, batch.passage_ids_BL, batch.passage_attention_BL)
    losses = []
    for own, (query, source, target) in enumerate(zip(queries, SOURCES, TARGETS)):
        logits = []
        for number, passage in enumerate(passages):
            if number != own and TARGETS[number] in (source, target):
                continue
            log_q = float(batch.log_q_B[number]) if config.correction else 0.0
            logits.append(query @ passage / config.temperature - log_q)
        right = query @ passages[own] / config.temperature - (float(batch.log_q_B[own]) if config.correction else 0.0)
        losses.append(torch.stack(logits).exp().sum().log() - right)
    total = torch.stack(losses).mean()
    total.backward()  # type: ignore[no-untyped-call]
    found = {name: values.grad for name, values in towers.named_parameters() if values.grad is not None}
    return {"loss": total.detach(), **found}


@pytest.mark.parametrize("way", [{}, {"padding": "kept"}, PARTS, CACHED], ids=["once", "padded", "in parts", "cached"])
@pytest.mark.parametrize("name", CASES)
def test_a_step_has_the_gradient_of_the_whole_loss(tiny_model: Path, name: str, way: dict[str, Any]) -> None:
    assert_same(of_case(tiny_model, name, dropout=False, **way), slow_gradients(tiny_model, CASES[name]))


@pytest.mark.parametrize("name", ["shared towers", "separate towers"])
def test_cached_gradients_are_those_of_the_same_parts_encoded_once(tiny_model: Path, name: str) -> None:
    """With dropout, each part uses the same mask in both of its encodings."""
    once, twice = (of_case(tiny_model, name, dropout=True, **way) for way in (PARTS, CACHED))
    assert_same(twice, once)
    without = of_case(tiny_model, name, dropout=False, **PARTS)
    assert not torch.allclose(without["loss"], once["loss"], rtol=0, atol=1e-3), "there was no dropout"


def test_scores_in_blocks_are_the_same_and_no_table_of_them_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores 13 queries 4 at a time and compares the loss, its gradients, and how many numbers it keeps."""
    random = np.random.default_rng(1)
    given = [torch.tensor(random.normal(size=(13, 5)), dtype=torch.float32) for _ in range(2)]
    log_q, hits = torch.tensor(random.normal(size=13)), torch.tensor(random.random((13, 13)) < 0.2)
    found, kept = [], []
    for at_once in (13 * 13, 4 * 13):
        monkeypatch.setattr(sampled_softmax, "SCORES_AT_ONCE", at_once)
        query, passage = (values.clone().requires_grad_() for values in given)
        inputs = {values.untyped_storage().data_ptr() for values in (query, passage, log_q, hits)}
        seen: list[int] = []

        def note(values: Tensor, inputs: set[int] = inputs, seen: list[int] = seen) -> Tensor:
            seen.append(0 if values.untyped_storage().data_ptr() in inputs else values.numel())
            return values

        with torch.autograd.graph.saved_tensors_hooks(note, lambda values: values):
            loss = sampled_softmax.sampled_softmax_loss(query, passage, log_q, hits, 0.5)
        loss.backward()  # type: ignore[no-untyped-call]
        found.append({"loss": loss.detach(), "query": query.grad, "passage": passage.grad})
        kept.append(sum(seen))
    assert_same(cast(Any, found[1]), cast(Any, found[0]), tolerance=1e-6)
    assert kept[1] < 13 * 13 <= kept[0]


def test_a_hand_computed_step(tiny_model: Path) -> None:
    """If all vectors are the same, the loss depends only on the sampling probabilities."""
    loss, towers, _ = open_loss(tiny_model, {"projection": 3, "pairs": 2}, **CACHED)
    assert towers.passage_tower.projection is not None  # type: ignore[union-attr]
    for values in towers.passage_tower.projection.parameters():  # type: ignore[union-attr]
        values.data.zero_()
    drawn = loss.draw(np.arange(2), STEP)
    q = drawn.log_q_B.double().exp().tolist()
    expected = -sum(math.log(1 / own / (1 / q[0] + 1 / q[1])) for own in q) / 2
    found = sum(float(part.detach()) for part in loss.training(drawn, STEP))
    assert found == pytest.approx(expected, abs=1e-6)
