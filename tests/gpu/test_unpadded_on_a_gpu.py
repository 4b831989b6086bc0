"""A row of tokens without padding on a GPU, in one call of its attention: the states, scores and gradients of a batch.

Texts have 1 to 200 tokens. A GPU computes them text by text in fp32, and with one call of the flash kernel in bf16.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from closeness import assert_each_close, difference, on_cpu
from test_unpadded import MODEL_TYPES, model_of
from torch import Tensor, nn
from transformers import PreTrainedModel

from stillhouse.models.acceleration import unpadded
from stillhouse.models.acceleration.device import autocast
from stillhouse.models.acceleration.unpadded import WITH_FIRST_TOKEN, can_end_in_first_token, without_padding

LENGTHS = torch.tensor([200, 1, 17, 64, 130, 2, 199, 33])
HEADS = [16, 32, 64]
"""Widths of a head; the flash kernel takes multiples of 8."""
BOTH = pytest.mark.parametrize("scores", [False, True], ids=["states", "scores"])
KINDS = pytest.mark.parametrize("kind", MODEL_TYPES)


def model_on(device: torch.device, kind: str, scores: bool = False, head: int = 16, **options: Any) -> PreTrainedModel:
    """A model of three or four layers in fp32 with four heads. ModernBERT's local layers see 16 places to a side."""
    width = 4 * head
    sizes = {"hidden_size": width, "intermediate_size": 2 * width, "max_position_embeddings": 256}
    sizes |= {"dim": width, "hidden_dim": 2 * width} if kind == "distilbert" else {}
    sizes |= {"local_attention": 32} if kind == "modernbert" else {}
    made: PreTrainedModel = model_of(kind, scores, **sizes, initializer_range=0.1, **options).float()
    return made.to(device)  # type: ignore[arg-type]


def texts_on(device: torch.device, lengths: Tensor = LENGTHS) -> tuple[Tensor, Tensor]:
    """Ids and mask of texts of these lengths, padded to the longest."""
    torch.manual_seed(1)
    mask = (torch.arange(int(lengths.max())) < lengths[:, None]).long()
    ids = torch.randint(5, 100, mask.shape).masked_fill(mask == 0, 1)
    return ids.to(device), mask.to(device)


def computed(
    model: PreTrainedModel, ids: Tensor, mask: Tensor, precision: str = "fp32"
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """The outputs at tokens, also those of an inner layer, and the gradients of a loss over all of them."""
    model.zero_grad()
    options: dict[str, Tensor] = {}
    if getattr(model.config, "type_vocab_size", 0) >= 2 and model.config.model_type != "distilbert":
        options["token_type_ids"] = (torch.arange(ids.shape[1], device=ids.device) > 5) * mask
    with autocast(precision, ids.device):
        output = model(input_ids=ids, attention_mask=mask, output_hidden_states=True, **options)
    found = [output.hidden_states[1] * mask[..., None]]
    found += [output.logits] if "logits" in output else [output.last_hidden_state * mask[..., None]]
    found = [each.float() for each in found]
    torch.stack([each.sin().sum() for each in found]).sum().backward()
    return [each.detach() for each in found], on_cpu(
        {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    )


@BOTH
@KINDS
def test_in_fp32_nothing_changes(kind: str, scores: bool, device: torch.device) -> None:
    model = model_on(device, kind, scores)
    texts = texts_on(device)
    padded, expected = computed(model, *texts)
    with without_padding(model):
        packed, found = computed(model, *texts)
    for left, right in zip(packed, padded, strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=1e-4)
    assert_each_close(found, expected, 1e-4)


@BOTH
@pytest.mark.parametrize("head", HEADS)
@KINDS
def test_in_bf16_it_is_as_near_to_fp32_as_the_padded_batch(
    kind: str, head: int, scores: bool, device: torch.device
) -> None:
    model = model_on(device, kind, scores, head)
    texts = texts_on(device)
    exact, gradient = computed(model, *texts)
    padded, of_padded = computed(model, *texts, "bf16")
    with without_padding(model):
        packed, found = computed(model, *texts, "bf16")
    for given, one, other in zip(exact, padded, packed, strict=True):
        assert float((other - given).norm()) <= 1.5 * float((one - given).norm()) + 0.01 * float(given.norm())
        assert float((other - given).norm()) <= 0.05 * float(given.norm())
    assert difference(found, gradient) <= 1.5 * difference(of_padded, gradient) + 0.01


@pytest.mark.parametrize("head", HEADS)
@KINDS
def test_in_bf16_it_uses_the_flash_kernel(
    kind: str, head: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device.type != "cuda":
        pytest.skip("only a GPU has the kernel")
    model = model_on(device, kind, head=head)
    texts = texts_on(device)
    monkeypatch.setattr(unpadded, "scaled_dot_product_attention", None)
    with without_padding(model):
        _, found = computed(model, *texts, "bf16")
    assert all(bool(values.isfinite().all()) for values in found.values())


@pytest.mark.parametrize("lengths", [[7], [1, 1, 1], [9, 1], [64, 64, 63]], ids=str)
def test_batches_of_few_and_short_texts(lengths: list[int], device: torch.device) -> None:
    """Padding beyond the longest text makes a row even of a single text."""
    model = model_on(device, "bert")
    ids, mask = (nn.functional.pad(each, (0, 4)) for each in texts_on(device, torch.tensor(lengths)))
    for precision, bound in (("fp32", 1e-4), ("bf16", 0.1)):
        padded, _ = computed(model, ids, mask, precision)
        with without_padding(model):
            packed, _ = computed(model, ids, mask, precision)
        for left, right in zip(packed, padded, strict=True):
            torch.testing.assert_close(left, right, rtol=0, atol=bound)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@KINDS
def test_dropout_is_drawn_anew_for_each_text_and_from_the_seed(kind: str, precision: str, device: torch.device) -> None:
    """The dropout of attention is drawn within its kernel."""
    dropout = {"distilbert": "attention_dropout", "modernbert": "attention_dropout"}
    name = dropout.get(kind, "attention_probs_dropout_prob")
    others = {"hidden_dropout_prob": 0.0, "dropout": 0.0} if kind != "modernbert" else {}
    model = model_on(device, kind, **{name: 0.5, **others}).train()
    ids, mask = texts_on(device)
    ids[6], mask[6] = ids[0], mask[0]
    states = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        model.zero_grad()
        with without_padding(model), autocast(precision, device):
            output = model(input_ids=ids, attention_mask=mask).last_hidden_state.float()
        output.sin().sum().backward()
        states.append(output.detach())
    assert all(bool(each.isfinite().all()) for each in states)
    assert all(bool(each.grad.isfinite().all()) for each in model.parameters() if each.grad is not None)
    assert not torch.allclose(states[0][0], states[0][6], atol=1e-2), "two equal texts have the same dropout"
    torch.testing.assert_close(states[0], states[1], rtol=0, atol=1e-4)
    assert not torch.allclose(states[0], states[2], atol=1e-2)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("kind", WITH_FIRST_TOKEN)
def test_first_tokens_alone_have_the_same_states(kind: str, precision: str, device: torch.device) -> None:
    model = model_on(device, kind)
    assert can_end_in_first_token(model)
    ids, mask = texts_on(device)
    found = []
    alone = {"first_token_alone": True}
    for padded, options in ((nullcontext, {}), (nullcontext, alone), (without_padding, alone)):
        model.zero_grad()
        with padded(model), autocast(precision, device):
            states = model(input_ids=ids, attention_mask=mask, **options).last_hidden_state[:, 0].float()
        states.sin().sum().backward()
        grads = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
        found.append((states.detach(), on_cpu({name: each.clone() for name, each in grads.items()})))
    for states, gradient in found[1:]:
        torch.testing.assert_close(states, found[0][0], rtol=0, atol=1e-4 if precision == "fp32" else 0.1)
        assert difference(gradient, found[0][1]) <= (1e-4 if precision == "fp32" else 0.1)
