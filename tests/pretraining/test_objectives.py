"""Every objective's loss against a slow float64 version of its paper's formula, forward and gradient."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM

from stillhouse.pretraining.corrupted import Corrupted, CorruptedBatch
from stillhouse.pretraining.heads import head_parameters
from stillhouse.pretraining.model import BottleneckPretraining
from stillhouse.pretraining.objectives import TABLE, Objective, find_objective

CLS, SEP, PAD = 2, 3, 0
VOCABULARY, WIDTH, HEADS = 50, 16, 2


def tiny_model(layers: int = 3) -> BertForMaskedLM:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=HEADS,
        intermediate_size=24,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.3,
    )
    return BertForMaskedLM(config).double()


def batch_of(objective: Objective) -> CorruptedBatch:
    """Passages of 6, 3 and 1 tokens with padding, each input corrupted at positions written out here."""
    ids = torch.tensor(
        [[CLS, 10, 11, 12, 11, 13, 14, SEP], [CLS, 20, 21, 22, SEP, 0, 0, 0], [CLS, 30, SEP, 0, 0, 0, 0, 0]]
    )
    attention = ids != PAD
    special = ~attention | (ids == CLS) | (ids == SEP)
    inner, outer = torch.zeros_like(special), torch.zeros_like(special)
    inner[[0, 0, 1, 2], [2, 5, 1, 1]] = True
    outer[[0, 0, 0, 1, 1, 2], [2, 4, 5, 1, 3, 1]] = True
    encoder = Corrupted(torch.where(inner, ids + 7, ids), inner)
    decoder = Corrupted(torch.where(outer, ids + 9, ids), outer) if objective.decoder != "none" else None
    return CorruptedBatch(ids, attention, special, encoder, decoder)


def slow_norm(norm: nn.Module, states: Tensor) -> Tensor:
    centred = states - states.mean(-1, keepdim=True)
    return centred / (centred.pow(2).mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias


def gelu(x: Tensor) -> Tensor:
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def slow_layer(layer: nn.Module, states: Tensor) -> Tensor:
    """One post-norm Transformer layer on one passage without padding, [l, D]."""
    attention = layer.attention.self
    size = WIDTH // HEADS
    query, key, value = (
        (states @ linear.weight.T + linear.bias) for linear in (attention.query, attention.key, attention.value)
    )
    read = []
    for head in range(HEADS):
        part = slice(head * size, (head + 1) * size)
        scores = query[:, part] @ key[:, part].T / math.sqrt(size)
        exponents = scores.exp()
        read.append(exponents / exponents.sum(1, keepdim=True) @ value[:, part])
    dense = layer.attention.output.dense
    states = slow_norm(layer.attention.output.LayerNorm, states + torch.cat(read, 1) @ dense.weight.T + dense.bias)
    wide = gelu(states @ layer.intermediate.dense.weight.T + layer.intermediate.dense.bias)
    narrow = wide @ layer.output.dense.weight.T + layer.output.dense.bias
    return slow_norm(layer.output.LayerNorm, states + narrow)


def slow_embed(model: BertForMaskedLM, ids: Tensor) -> Tensor:
    tables = model.bert.embeddings
    total = tables.word_embeddings.weight[ids] + tables.position_embeddings.weight[: len(ids)]
    return slow_norm(tables.LayerNorm, total + tables.token_type_embeddings.weight[0])


def slow_log_probabilities(model: BertForMaskedLM, states: Tensor) -> Tensor:
    transform = model.cls.predictions.transform
    inner = slow_norm(transform.LayerNorm, gelu(states @ transform.dense.weight.T + transform.dense.bias))
    logits = inner @ model.bert.embeddings.word_embeddings.weight.T + model.cls.predictions.bias
    return logits - logits.exp().sum(-1, keepdim=True).log()


def slow_loss(training: BottleneckPretraining, batch: CorruptedBatch, name: str, pooling: str) -> Tensor:
    """The formulas of the papers, passage by passage and token by token."""
    model = training.model
    total = torch.zeros((), dtype=torch.float64)
    for row in range(len(batch.ids_BL)):
        size = int(batch.attention_BL[row].sum())
        ids = batch.ids_BL[row, :size]
        states = slow_embed(model, batch.encoder.ids_BL[row, :size])
        for layer in model.bert.encoder.layer:
            states = slow_layer(layer, states)
        h = states[0] if pooling == "cls" else states.mean(0)
        inner = batch.encoder.mask_BL[row].nonzero().flatten().tolist()
        tokens = list(range(1, size - 1))
        log_p = slow_log_probabilities(model, states)
        where = tokens if name == "simlm" else inner
        total = total - sum(log_p[i, ids[i]] for i in where) / len(where)
        if name == "bow":
            bag = sorted({int(token) for token in ids[1:-1]})
            logits = model.bert.embeddings.word_embeddings.weight @ h
            log_q = logits - logits.exp().sum().log()
            total = total - sum(log_q[token] for token in bag) / len(bag)
        if name in ("simlm", "cdmae"):
            assert batch.decoder is not None
            bottleneck = h if name == "simlm" else training.bottleneck.weight @ h + training.bottleneck.bias
            inputs = slow_embed(model, batch.decoder.ids_BL[row, :size])
            states = torch.cat([bottleneck[None], inputs[1:]])
            for layer in training.decoder:
                states = slow_layer(layer, states)
            log_p = slow_log_probabilities(model, states)
            where = tokens if name == "simlm" else batch.decoder.mask_BL[row].nonzero().flatten().tolist()
            total = total - sum(log_p[i, ids[i]] for i in where) / len(where)
    return total / len(batch.ids_BL)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("objective", TABLE, ids=lambda objective: objective.name)
def test_loss_and_gradient(objective: Objective, pooling: str) -> None:
    training = BottleneckPretraining(tiny_model(), objective, pooling).double()
    # A trained head has a bias, and a copied decoder drifts from the layers that it was copied from.
    with torch.no_grad():
        for parameter in training.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    batch = batch_of(objective)
    loss, slow = training(batch), slow_loss(training, batch, objective.name, pooling)
    torch.testing.assert_close(loss, slow, rtol=0, atol=1e-5)
    parameters = dict(training.named_parameters())
    got = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    expected = torch.autograd.grad(slow, list(parameters.values()), allow_unused=True)
    for name, left, right in zip(parameters, got, expected):
        zero = torch.zeros_like(parameters[name])
        left, right = (zero if grad is None else grad for grad in (left, right))
        torch.testing.assert_close(left, right, rtol=0, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("name", ["simlm", "cdmae"])
def test_decoder_sees_the_encoder_only_through_the_bottleneck(name: str, pooling: str) -> None:
    objective = find_objective(name)
    training = BottleneckPretraining(tiny_model(), objective, pooling).double()
    batch = batch_of(objective)
    assert batch.decoder is not None
    hidden = training.encode(batch.encoder.ids_BL, batch.attention_BL).detach().requires_grad_()
    vectors = training.vector(hidden, batch.attention_BL)
    decoded = training.decode(vectors, batch.decoder.ids_BL, batch.attention_BL)
    loss = training.prediction_loss(decoded, batch, batch.decoder)
    into_hidden, into_vectors = torch.autograd.grad(loss, (hidden, vectors))
    share = torch.zeros_like(hidden)
    if pooling == "cls":
        share[:, 0] = into_vectors
    else:
        lengths = batch.attention_BL.sum(1)[:, None, None]
        share = (into_vectors[:, None] / lengths) * batch.attention_BL[..., None]
    assert float(into_vectors.abs().max()) > 1e-4
    torch.testing.assert_close(into_hidden, share)
    # The whole decoder loss as `parts` computes it reaches the encoder's layers by no other way.
    layer = training.model.bert.encoder.layer[-1].output.dense.weight
    whole = torch.autograd.grad(training.parts(batch)["decoder"], layer)[0]
    again = training.vector(training.encode(batch.encoder.ids_BL, batch.attention_BL), batch.attention_BL)
    torch.testing.assert_close(whole, torch.autograd.grad(again, layer, into_vectors)[0])


def test_decoder_starts_from_the_last_layers_or_from_new_ones() -> None:
    model = tiny_model()
    copied = BottleneckPretraining(model, find_objective("simlm"), "cls").decoder
    for layer, source in zip(copied, model.bert.encoder.layer[-2:]):
        for (name, value), other in zip(layer.named_parameters(), source.parameters()):
            assert value is not other, name
            torch.testing.assert_close(value, other)
    fresh = BottleneckPretraining(copy.deepcopy(model), find_objective("cdmae"), "cls").decoder
    assert len(fresh) == len(copied) == 2
    assert not torch.equal(fresh[0].output.dense.weight, model.bert.encoder.layer[-2].output.dense.weight.float())


def test_training_the_head_alone_leaves_the_encoder_as_it_is() -> None:
    model = tiny_model()
    training = BottleneckPretraining(model, find_objective("mlm"), "cls", head_only=True).train()
    assert not model.bert.training
    training(batch_of(find_objective("mlm"))).backward()
    moved = {name for name, parameter in training.model.named_parameters() if parameter.grad is not None}
    assert moved == set(head_parameters(model)) - {"cls.predictions.decoder.bias"}
    assert not any(name.startswith("bert.") for name in moved)


def test_a_batch_with_a_passage_without_tokens_has_a_finite_loss() -> None:
    for objective in TABLE:
        batch = batch_of(objective)
        batch.special_BL[2] = True
        for corrupted in (batch.encoder, batch.decoder):
            if corrupted is not None:
                corrupted.mask_BL[2] = False
        loss = BottleneckPretraining(tiny_model(), objective, "mean").double()(batch)
        assert np.isfinite(float(loss.detach()))
