"""A last layer that computes only the first token gives it the same state, score and gradients as a whole layer."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from test_unpadded import model_of, texts_of
from torch import Tensor, nn
from transformers import PreTrainedModel

from stillhouse.models.acceleration.unpadded import FIRST, WITH_FIRST_TOKEN, can_end_in_first_token, without_padding
from stillhouse.models.towers import TransformerTower


def computed(model: PreTrainedModel, scores: bool, **options: bool) -> list[Tensor]:
    """Return the scores or the first tokens' states, then the gradients of all parameters."""
    ids, mask = texts_of(model)
    output = model(input_ids=ids, attention_mask=mask, **options)
    read = output.logits if scores else output.last_hidden_state[:, 0]
    gradients = torch.autograd.grad(read.sin().sum(), list(model.parameters()), allow_unused=True)
    return [read] + [torch.zeros(1) if one is None else one for one in gradients]


@pytest.mark.parametrize("padding", [True, False], ids=["padded", "in a row"])
@pytest.mark.parametrize("scores", [False, True], ids=["states", "scores"])
@pytest.mark.parametrize("kind", WITH_FIRST_TOKEN)
def test_the_first_token_s_states_are_unchanged(kind: str, scores: bool, padding: bool) -> None:
    model = model_of(kind, scores)
    before = computed(model, scores)
    assert can_end_in_first_token(model)
    with nullcontext() if padding else without_padding(model):
        alone = computed(model, scores, first_token_alone=True)
        whole = computed(model, scores)
    for left, right, without_option in zip(before, alone, whole, strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=1e-10)
        torch.testing.assert_close(left, without_option, rtol=0, atol=1e-10)


def rows_of(layer: nn.Module) -> list[tuple[int, ...]]:
    """Return a list that fills with the shapes of the layer's inputs, without the last dimension, as it computes."""
    read: list[tuple[int, ...]] = []
    layer.register_forward_hook(lambda _, inputs, __: read.append(tuple(inputs[0].shape[:-1])))
    return read


def test_only_the_last_layer_skips_tokens_and_only_for_cls_pooling() -> None:
    model = model_of("bert", False)
    ids, mask = texts_of(model)
    first, last = (rows_of(model.encoder.layer[place].intermediate) for place in (0, 2))
    TransformerTower(model, "mean")(ids, mask)
    TransformerTower(model, "cls")(ids, mask)
    with without_padding(model):
        TransformerTower(model, "cls")(ids, mask)
    tokens = int(mask.sum())
    assert first == [(6, 17), (6, 17), (1, tokens)]
    assert last == [(6, 17), (6, FIRST), (6, 1)]


def test_a_copy_computes_by_its_own_parameters_and_files_stay_as_they_are(tmp_path: Any) -> None:
    """The query tower is such a copy of the passage tower."""
    model = model_of("bert", False)
    model.save_pretrained(tmp_path / "before")
    tower = TransformerTower(model, "cls")
    other = copy.deepcopy(tower)
    model.save_pretrained(tmp_path / "after")
    ids, mask = texts_of(model)
    before = other(ids, mask)
    with torch.no_grad():
        for parameter in model.encoder.layer[-1].parameters():
            parameter.zero_()
    assert torch.equal(other(ids, mask), before) and not torch.equal(tower(ids, mask), before)
    for file in ("config.json", "model.safetensors"):
        assert (tmp_path / "before" / file).read_bytes() == (tmp_path / "after" / file).read_bytes()


def test_dropout_differs_by_text_and_applies_in_training_only() -> None:
    model = model_of("bert", False)
    can_end_in_first_token(model)
    ids = torch.randint(5, 100, (1, 17)).expand(2, 17)
    mask = torch.ones_like(ids)

    def states() -> Tensor:
        return model(input_ids=ids, attention_mask=mask, first_token_alone=True).last_hidden_state[:, 0]

    torch.testing.assert_close(states()[0], states()[1], rtol=0, atol=1e-6)
    model.train()
    assert not torch.allclose(states()[0], states()[1], atol=1e-3)


@pytest.mark.parametrize(("kind", "options"), [("mpnet", {}), ("bert", {"is_decoder": True})])
def test_a_type_of_model_that_is_not_known_computes_every_token(kind: str, options: dict[str, bool]) -> None:
    model = model_of(kind, False, **options)
    ids, mask = texts_of(model)
    read = rows_of(model.encoder.layer[-1].intermediate)
    assert not can_end_in_first_token(model)
    TransformerTower(model, "cls")(ids, mask)
    assert read == [(6, 17)]
