"""Texts joined into one row of tokens have the same states, scores and gradients as in a padded batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, PreTrainedModel

from stillhouse.core.errors import InputError
from stillhouse.models.acceleration.unpadded import MODEL_TYPES, leaves_padding_out, without_padding

CPU, GPU = torch.device("cpu"), torch.device("cuda")
LENGTHS = torch.tensor([17, 3, 9, 1, 12, 17])
SIZES: dict[str, Any] = {"vocab_size": 100, "num_hidden_layers": 3, "hidden_size": 32, "num_attention_heads": 4}
SIZES |= {"intermediate_size": 64, "max_position_embeddings": 24, "type_vocab_size": 2}
SIZES |= {"initializer_range": 0.3, "num_labels": 1}
OF_TYPE: dict[str, dict[str, Any]] = {
    "electra": {"embedding_size": 16},
    "distilbert": {"n_layers": 3, "dim": 32, "n_heads": 4, "hidden_dim": 64, "seq_classif_dropout": 0.0},
    "modernbert": {
        "local_attention": 6,
        "num_hidden_layers": 4,
        "type_vocab_size": 0,
        "pad_token_id": 0,
        "classifier_pooling": "mean",
    },
    "mpnet": {},
}


def model_of(kind: str, scores: bool, **options: Any) -> PreTrainedModel:
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **{**SIZES, **OF_TYPE.get(kind, {}), **options})
    made = (AutoModelForSequenceClassification if scores else AutoModel).from_config(config)
    return made.double().eval()


def texts_of(model: PreTrainedModel) -> tuple[Tensor, Tensor]:
    """Return ids and mask of texts of `LENGTHS` tokens; one text contains the padding id as a real token."""
    torch.manual_seed(1)
    mask = (torch.arange(17) < LENGTHS[:, None]).long()
    ids = torch.randint(5, 100, mask.shape).masked_fill(mask == 0, model.config.pad_token_id)
    ids[2, 4] = model.config.pad_token_id
    return ids, mask


def computed(model: PreTrainedModel, ids: Tensor, mask: Tensor) -> list[Tensor]:
    """Return the outputs at real tokens, also of an inner layer, then the gradients of all parameters."""
    types = {} if model.config.model_type == "distilbert" else {"token_type_ids": (torch.arange(17) > 5) * mask}
    if getattr(model.config, "type_vocab_size", 0) < 2:
        types = {}
    output = model(input_ids=ids, attention_mask=mask, output_hidden_states=True, **types)
    found = [output.hidden_states[1] * mask[..., None]]
    found += [output.logits] if "logits" in output else [output.last_hidden_state * mask[..., None]]
    found += [output.pooler_output] if output.get("pooler_output") is not None else []
    total = torch.stack([each.sin().sum() for each in found]).sum()
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(total, parameters, allow_unused=True)
    return found + [torch.zeros(1) if one is None else one for one in gradients]


@pytest.mark.parametrize("scores", [False, True], ids=["states", "scores"])
@pytest.mark.parametrize("kind", MODEL_TYPES)
def test_skipping_padding_changes_no_result(kind: str, scores: bool) -> None:
    model = model_of(kind, scores)
    ids, mask = texts_of(model)
    padded = computed(model, ids, mask)
    with without_padding(model):
        packed = computed(model, ids, mask)
    for left, right in zip(padded, packed, strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=1e-10)


def test_rows_drop_padding_and_full_batches_are_unchanged() -> None:
    model = model_of("bert", False)
    ids, mask = texts_of(model)
    read: list[torch.Size] = []
    layer: nn.Module = model.encoder.layer[0].intermediate
    layer.register_forward_hook(lambda _, inputs, __: read.append(inputs[0].shape[:-1]))
    with without_padding(model):
        states = model(input_ids=ids, attention_mask=mask).last_hidden_state
        model(input_ids=ids[[0, 5]], attention_mask=mask[[0, 5]])
    model(input_ids=ids, attention_mask=mask)
    assert [tuple(each) for each in read] == [(1, int(LENGTHS.sum())), (2, 17), (6, 17)]
    assert not states[mask == 0].any() and states[mask == 1].any(-1).all()


def test_a_text_does_not_see_its_neighbours() -> None:
    model = model_of("bert", False)
    ids, mask = texts_of(model)
    with without_padding(model):
        before = model(input_ids=ids, attention_mask=mask).last_hidden_state
        ids[1, 1] += 1
        after = model(input_ids=ids, attention_mask=mask).last_hidden_state
    assert [bool(text.any()) for text in (before - after).abs() > 1e-12] == [number == 1 for number in range(6)]


def test_dropout_is_drawn_anew_in_the_row() -> None:
    """Dropout differs from text to text: two equal texts get different states."""
    model = model_of("bert", False).train()
    ids, mask = texts_of(model)
    ids[5] = ids[0]
    with without_padding(model):
        states = model(input_ids=ids, attention_mask=mask).last_hidden_state
    assert not torch.allclose(states[0], states[5], atol=1e-3)


def test_the_model_is_restored_after_the_block(tmp_path: Any) -> None:
    model = model_of("roberta", True)
    model.save_pretrained(tmp_path / "before")
    with without_padding(model), without_padding(model):
        model(*texts_of(model))
        model.save_pretrained(tmp_path / "within")
    assert "forward" not in model.roberta.__dict__ and model.config._attn_implementation == "sdpa"
    assert (tmp_path / "before/config.json").read_bytes() == (tmp_path / "within/config.json").read_bytes()


@pytest.mark.parametrize(
    ("kind", "padding", "device", "left_out"),
    [
        ("bert", "auto", CPU, True),
        ("bert", "auto", GPU, False),
        ("bert", "kept", CPU, False),
        ("bert", "none", GPU, True),
        ("modernbert", "auto", CPU, True),
        ("mpnet", "auto", CPU, False),
        ("mpnet", "kept", GPU, False),
    ],
)
def test_where_padding_is_left_out(kind: str, padding: str, device: torch.device, left_out: bool) -> None:
    assert leaves_padding_out(model_of(kind, False), padding, device) is left_out


def test_a_model_with_custom_attention_is_refused() -> None:
    with pytest.raises(InputError, match=r"left out for bert, .*, but not for mpnet; set padding: kept"):
        leaves_padding_out(model_of("mpnet", True), "none", CPU)
    decoder = model_of("bert", False, is_decoder=True)
    assert not leaves_padding_out(decoder, "auto", CPU)
    with pytest.raises(InputError, match=r"not for bert \(decoder\)"):
        leaves_padding_out(decoder, "none", CPU)
