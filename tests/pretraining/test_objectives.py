"""Every objective's loss, compared with a slow float64 version of its paper's formula, values and gradients."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from slow_models import WINDOW, SlowBert, SlowModernBert, gelu
from small_bert import small_bert
from torch import Tensor
from transformers import BertForMaskedLM, ModernBertConfig, ModernBertForMaskedLM, PreTrainedModel

from stillhouse.models.acceleration.unpadded import without_padding
from stillhouse.pretraining.corrupted import Corrupted, CorruptedBatch
from stillhouse.pretraining.model import BottleneckPretraining
from stillhouse.pretraining.objectives import TABLE, Objective, find_objective

CLS, SEP, PAD = 2, 3, 0
VOCABULARY, WIDTH, HEADS = 50, 16, 2


def modern_model() -> ModernBertForMaskedLM:
    """The middle one of its three layers attends within a window."""
    torch.manual_seed(0)
    config = ModernBertConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=3,
        num_attention_heads=HEADS,
        intermediate_size=24,
        max_position_embeddings=16,
        local_attention=2 * WINDOW,
        global_attn_every_n_layers=2,
        initializer_range=0.3,
        pad_token_id=PAD,
    )
    return ModernBertForMaskedLM(config).double()


MODELS: dict[str, tuple[Callable[[], PreTrainedModel], type[SlowBert]]] = {
    "bert": (lambda: tiny_model(), SlowBert),
    "modernbert": (modern_model, SlowModernBert),
}


def tiny_model(layers: int = 3) -> BertForMaskedLM:
    sizes = {"intermediate_size": 24, "initializer_range": 0.3}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return small_bert(VOCABULARY, WIDTH, layers, **sizes, **dropout).double()


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
    masks = {"none": torch.zeros_like(special), "all": ~special, "random": inner, "nested": outer, "importance": outer}
    inner = masks[objective.encoder.draw]
    encoder = Corrupted(torch.where(inner, ids + 7, ids), inner)
    decoder = hidden = None
    if objective.decoder_corruption is not None:
        chosen = outer if objective.decoder_corruption.draw == "random" else masks[objective.decoder_corruption.draw]
        # One of the samples equals the original token.
        replaced = torch.where(ids == 11, ids, ids + 9)
        decoder = Corrupted(torch.where(chosen, replaced, ids), chosen)
    if objective.decoder == "enhanced":
        length = ids.shape[1]
        place = torch.arange(length)
        hidden = ((place[:, None] * 3 + place[None] * 5) % 7 < 3)[None] & ~special[:, None]
        hidden = hidden | torch.eye(length, dtype=torch.bool) | ~attention[:, None]
    return CorruptedBatch(ids, attention, special, encoder, decoder, hidden)


def slow_prediction(
    training: BottleneckPretraining, slow: SlowBert, states: Tensor, ids: Tensor, corrupted: Tensor, where: list[int]
) -> Tensor:
    """The mean loss over the positions `where` of one passage."""
    if training.replaced_head is None:
        log_p = slow.log_probabilities(states)
        return -sum(log_p[i, ids[i]] for i in where) / len(where)
    head = training.replaced_head
    total = torch.zeros((), dtype=torch.float64)
    for i in where:
        inner = gelu(states[i] @ head.dense.weight.T + head.dense.bias)
        p = 1 / (1 + (-(inner @ head.out.weight[0] + head.out.bias[0])).exp())
        total = total - (p.log() if corrupted[i] != ids[i] else (1 - p).log())
    return total / len(where)


ALL_POSITIONS = {"simlm", "simlm_joint", "simlm_joint_random", "enc_dec_rtd", "simlm_importance"}
PROJECTED = {"cdmae", "cdmae_bow"}
BAG = {"bow", "bow_importance", "cdmae_bow"}
NO_DECODER = {"mlm", "bow", "bow_importance"}


def slow_loss(
    training: BottleneckPretraining, slow: SlowBert, batch: CorruptedBatch, name: str, pooling: str
) -> Tensor:
    """The formulas of the papers, passage by passage and token by token."""
    total = torch.zeros((), dtype=torch.float64)
    for row in range(len(batch.ids_BL)):
        size = int(batch.attention_BL[row].sum())
        ids, given = batch.ids_BL[row, :size], batch.encoder.ids_BL[row, :size]
        layers = slow.hidden_states(given)
        states = layers[-1]
        h = states[0] if pooling == "cls" else states.mean(0)
        inner = batch.encoder.mask_BL[row].nonzero().flatten().tolist()
        tokens = list(range(1, size - 1))
        if name != "autoencoder":
            total = total + slow_prediction(
                training, slow, states, ids, given, tokens if name in ALL_POSITIONS else inner
            )
        if name in BAG:
            bag = sorted({int(token) for token in ids[1:-1]})
            logits = slow.words @ h
            log_q = logits - logits.exp().sum().log()
            total = total - sum(log_q[token] for token in bag) / len(bag)
        if name in NO_DECODER:
            continue
        bottleneck = training.bottleneck.weight @ h + training.bottleneck.bias if name in PROJECTED else h
        if name == "condenser":  # of three layers, the middle is after the first
            read, where = given, inner
            states = torch.cat([bottleneck[None], layers[1][1:]])
        else:
            assert batch.decoder is not None
            read = batch.decoder.ids_BL[row, :size]
            states = torch.cat([bottleneck[None], slow.embed(read)[1:]])
            where = batch.decoder.mask_BL[row].nonzero().flatten().tolist()
        if name == "enhanced_decoding":
            assert batch.hidden_BLL is not None
            hidden = batch.hidden_BLL[row, :size, :size]
            states = slow.enhanced(training.decoder.layers[0], slow.query_of(bottleneck, size), states, hidden)
            where = tokens
        else:
            states = slow.decoded(training.decoder, states, causal=name == "auto_regression")
        if name == "auto_regression":  # the state before a token predicts it
            states, where = torch.cat([states[:1], states[:-1]]), tokens
        total = total + slow_prediction(
            training, slow, states, ids, read, tokens if name in ALL_POSITIONS | {"autoencoder"} else where
        )
    return total / len(batch.ids_BL)


@pytest.mark.parametrize("padded", [nullcontext, without_padding], ids=["padded", "unpadded"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("objective", TABLE, ids=lambda objective: objective.name)
@pytest.mark.parametrize("kind", MODELS)
def test_loss_and_gradient(
    kind: str, objective: Objective, pooling: str, padded: Callable[..., AbstractContextManager]
) -> None:
    make, slow_kind = MODELS[kind]
    training = BottleneckPretraining(make(), objective, pooling).double()
    # A trained head has a bias, and a copied decoder drifts from the layers that it was copied from.
    with torch.no_grad():
        for parameter in training.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    batch = batch_of(objective)
    with padded(training):
        loss = training(batch)
    slow = slow_loss(training, slow_kind(training.model), batch, objective.name, pooling)
    torch.testing.assert_close(loss, slow, rtol=0, atol=1e-5)
    parameters = dict(training.named_parameters())
    got = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    expected = torch.autograd.grad(slow, list(parameters.values()), allow_unused=True)
    for name, left, right in zip(parameters, got, expected):
        zero = torch.zeros_like(parameters[name])
        left, right = (zero if grad is None else grad for grad in (left, right))
        torch.testing.assert_close(left, right, rtol=0, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("kind", MODELS)
def test_in_bf16_losses_and_gradients_are_near_those_in_fp32(kind: str) -> None:
    for objective in TABLE:
        training = BottleneckPretraining(MODELS[kind][0](), objective, "cls").float().eval()
        batch = batch_of(objective)
        exact = training(batch)
        with torch.autocast("cpu", torch.bfloat16):
            rounded = training(batch)
        rounded.backward()
        torch.testing.assert_close(rounded.float(), exact, rtol=0.03, atol=0.03)
        gradients = [parameter.grad for parameter in training.parameters() if parameter.grad is not None]
        assert gradients and all(bool(gradient.isfinite().all()) for gradient in gradients), objective.name


@pytest.mark.parametrize("pooling", ["cls", "mean"])
@pytest.mark.parametrize("name", [row.name for row in TABLE if row.decoder not in ("none", "skip")])
def test_decoder_sees_the_encoder_only_through_the_bottleneck(name: str, pooling: str) -> None:
    objective = find_objective(name)
    training = BottleneckPretraining(tiny_model(), objective, pooling).double()
    batch = batch_of(objective)
    assert batch.decoder is not None
    hidden = training.encode(batch.encoder.ids_BL, batch.attention_BL)[0].detach().requires_grad_()
    vectors = training.vector(hidden, batch.attention_BL)
    decoded = training.decode(vectors, None, batch)
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
    # The whole decoder loss as `parts` computes it reaches the encoder's layers in no other way.
    layer = training.model.bert.encoder.layer[-1].output.dense.weight
    whole = torch.autograd.grad(training.parts(batch)["decoder"], layer)[0]
    again = training.vector(training.encode(batch.encoder.ids_BL, batch.attention_BL)[0], batch.attention_BL)
    torch.testing.assert_close(whole, torch.autograd.grad(again, layer, into_vectors)[0])


def test_condensers_decoder_sees_the_middle_layers_tokens_too_and_no_other() -> None:
    """Besides the bottleneck, the states after layer 1 of 3 reach its decoder through the skip connections."""
    training = BottleneckPretraining(tiny_model(), find_objective("condenser"), "cls").double()
    batch = batch_of(find_objective("condenser"))
    hidden, middle = training.encode(batch.encoder.ids_BL, batch.attention_BL)
    assert middle is not None
    hidden, middle = hidden.detach().requires_grad_(), middle.detach().requires_grad_()
    decoded = training.decode(training.vector(hidden, batch.attention_BL), middle, batch)
    into_hidden, into_middle = torch.autograd.grad(
        training.prediction_loss(decoded, batch, batch.encoder), (hidden, middle)
    )
    assert float(into_hidden[:, 0].abs().max()) > 1e-4
    assert not into_hidden[:, 1:].any(), "of the last layer it reads [CLS] alone"
    assert float(into_middle[:, 1:].abs().max()) > 1e-4
    assert not into_middle[:, 0].any()


def test_enhanced_decoding_cannot_see_its_own_token() -> None:
    """Changing a token changes what is decoded at other positions that see it, and nowhere else."""
    objective = find_objective("enhanced_decoding")
    training = BottleneckPretraining(tiny_model(), objective, "cls").double().eval()
    batch = batch_of(objective)
    assert batch.decoder is not None and batch.hidden_BLL is not None
    vectors = torch.randn(3, WIDTH, dtype=torch.float64)
    before = training.decode(vectors, None, batch)
    batch.decoder.ids_BL[0, 3] += 20
    changed = (training.decode(vectors, None, batch) - before).abs().amax(-1)[0] > 1e-12
    assert changed.tolist() == (~batch.hidden_BLL[0, :, 3]).tolist()
    assert not changed[3]


def test_the_causal_decoder_sees_no_later_token() -> None:
    objective = find_objective("auto_regression")
    training = BottleneckPretraining(tiny_model(), objective, "cls").double().eval()
    batch = batch_of(objective)
    assert batch.decoder is not None
    vectors = torch.randn(3, WIDTH, dtype=torch.float64)
    before = training.decode(vectors, None, batch)
    batch.decoder.ids_BL[0, 3] += 20
    changed = (training.decode(vectors, None, batch) - before).abs().amax(-1)[0, 1:] > 1e-12
    assert changed.tolist() == [False, False, False, True, True, True, True]  # positions 1..7: from 4 on


def test_a_generator_that_learns_adds_its_weighted_loss_and_its_parameters() -> None:
    objective = find_objective("simlm_joint")
    generator = tiny_model(1)
    training = BottleneckPretraining(tiny_model(), objective, "cls", generator=generator, generator_weight=0.2).train()
    assert not generator.training, "it samples without dropout"
    batch = dataclasses.replace(batch_of(objective), generator_loss=torch.tensor(3.0, dtype=torch.float64))
    torch.testing.assert_close(training.parts(batch)["generator"], torch.tensor(0.6, dtype=torch.float64))
    own = {id(parameter) for parameter in training.parameters()}
    assert all(id(parameter) in own for parameter in generator.parameters())
