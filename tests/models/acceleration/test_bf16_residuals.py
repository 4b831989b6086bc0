"""Residual sums in bf16: near those of autocast, for every module that has them, and only on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_unpadded import model_of, texts_of
from torch import nn
from transformers import PreTrainedModel

from stillhouse.models.acceleration import replaced as made
from stillhouse.models.acceleration.replaced import added_and_normalised, bf16_residuals

CPU = torch.device("cpu")
LIKE_BERT = ("bert", "camembert", "electra", "roberta", "xlm-roberta")


def small(kind: str) -> PreTrainedModel:
    return model_of(kind, False, initializer_range=0.05).float().train()


@pytest.fixture
def the_cpu_counts_as_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made, "DEVICE", "cpu")


@pytest.mark.parametrize("kind", LIKE_BERT)
def test_states_and_gradients_are_as_near_to_fp32_as_autocast_s(
    kind: str, the_cpu_counts_as_a_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Distances are shares of the whole: bf16 has three digits, and three layers add up their rounding."""
    summed: list[torch.Tensor] = []

    def counted(*given: Any) -> torch.Tensor:
        summed.append(added_and_normalised(*given))
        return summed[-1]

    monkeypatch.setattr(made, "added_and_normalised", counted)

    def found(model: PreTrainedModel, bf16: bool) -> tuple[torch.Tensor, torch.Tensor]:
        ids, mask = texts_of(model)
        model.zero_grad()
        model.eval()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            states = model(input_ids=ids, attention_mask=mask).last_hidden_state
        states = states.float()
        (states * mask[..., None]).sin().sum().backward()
        gradients = [each.grad.flatten() for each in model.parameters() if each.grad is not None]
        return (states * mask[..., None]).detach(), torch.cat(gradients)

    model = small(kind)
    exact, autocast = found(model, False), found(model, True)
    with bf16_residuals(model, "bf16", CPU):
        ours = found(model, True)
    assert len(summed) == 5
    for right, theirs, own in zip(exact, autocast, ours):
        distance, of_theirs = (float((each - right).norm() / right.norm()) for each in (own, theirs))
        assert 0 < distance < max(0.03, 2 * of_theirs), (distance, of_theirs)


def test_a_sum_is_normalised_after_dropout() -> None:
    """Compares with the formula in fp32, from the same product and the same draw; bf16 has three digits."""
    part = small("bert").encoder.layer[0].output
    nn.init.normal_(part.LayerNorm.weight, 1, 0.2)
    nn.init.normal_(part.LayerNorm.bias, 0, 0.2)
    part.dropout.p = 0.4
    hidden, residual = torch.randn(5, 7, 64), torch.randn(5, 7, 32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.manual_seed(2)
        found = added_and_normalised(part, hidden, residual)
        product = part.dense(hidden)
    torch.manual_seed(2)
    summed = part.dropout(product).float() + residual
    expected = (summed - summed.mean(-1, keepdim=True)) / (summed.var(-1, keepdim=True, correction=0) + 1e-12).sqrt()
    expected = expected * part.LayerNorm.weight + part.LayerNorm.bias
    assert found.dtype == torch.bfloat16 and part.training
    torch.testing.assert_close(found.float(), expected, rtol=0.02, atol=0.05)


@pytest.mark.parametrize("kind", LIKE_BERT)
def test_all_sums_but_the_last_layer_s_final_one_are_replaced(kind: str, the_cpu_counts_as_a_gpu: None) -> None:
    """Each of the three layers has two."""
    model = small(kind)
    with bf16_residuals(model, "bf16", CPU):
        replaced = [name for name, part in model.named_modules() if "forward" in part.__dict__]
        with bf16_residuals(model, "bf16", CPU):
            assert [name for name, part in model.named_modules() if "forward" in part.__dict__] == replaced
    assert len(replaced) == 5 and not any(name.endswith("layer.2.output") for name in replaced)
    assert not any("forward" in part.__dict__ for part in model.modules())


@pytest.mark.parametrize(("precision", "kind"), [("fp32", "bert"), ("bf16", "distilbert"), ("bf16", "modernbert")])
def test_nothing_is_replaced_in_fp32_and_in_other_models(
    precision: str, kind: str, the_cpu_counts_as_a_gpu: None
) -> None:
    model = small(kind)
    with bf16_residuals(model, precision, CPU):
        assert not any("forward" in part.__dict__ for part in model.modules())
