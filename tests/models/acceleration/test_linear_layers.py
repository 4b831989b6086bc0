"""Linear layers that train with oneDNN, compared with the same layers in float64."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from stillhouse.models.acceleration.device import AMD
from stillhouse.models.acceleration.replaced import can_pack, fast_linear_layers

CPU = torch.device("cpu")
computes = pytest.mark.skipif(not can_pack(torch.float32, CPU), reason="oneDNN does not compute fp32 here")


def layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(33, 70), nn.Tanh(), nn.Linear(70, 3, bias=False))


def gradients(model: nn.Module, inputs: Tensor) -> list[Tensor]:
    """Return the output, then the gradients of the inputs and the parameters."""
    inputs = inputs.clone().requires_grad_()
    output = model(inputs)
    output.square().sum().backward()
    found = [inputs.grad, *(parameter.grad for parameter in model.parameters())]
    return [output.detach(), *(values for values in found if values is not None)]


@computes
@pytest.mark.parametrize("shape", [(1, 33), (5, 33), (2, 7, 33), (300, 33), (2, 1, 3, 33), (0, 33)])
def test_outputs_and_gradients_are_those_of_float64(shape: tuple[int, ...]) -> None:
    model, inputs = layers(), torch.randn(shape)
    expected = gradients(copy.deepcopy(model).double(), inputs.double())
    with fast_linear_layers(model, CPU, AMD):
        found = gradients(model, inputs)
    assert len(found) == len(expected) == 5
    for one, two in zip(found, expected):
        scale = float(two.abs().max()) if two.numel() else 1.0
        torch.testing.assert_close(one.double(), two, rtol=0, atol=1e-6 * max(1.0, scale))


@computes
def test_fast_layers_apply_in_fp32_and_within_the_block_only() -> None:
    model, inputs = layers(), torch.randn(4, 33)
    plain = model(inputs)
    with pytest.raises(RuntimeError), fast_linear_layers(model, CPU, AMD):
        ours = model[0](inputs).grad_fn  # type: ignore[index]
        assert "_Linear" in type(ours).__name__
        with torch.autocast("cpu", dtype=torch.bfloat16):
            half = model[0](inputs)  # type: ignore[index]
            assert half.dtype == torch.bfloat16 and "_Linear" not in type(half.grad_fn).__name__
        raise RuntimeError
    assert torch.equal(model(inputs), plain) and not any("forward" in each.__dict__ for each in model.modules())


@computes
def test_frozen_weights_get_no_gradient_and_changed_weights_are_used() -> None:
    model, inputs = layers(), torch.randn(4, 33)
    model[0].requires_grad_(False)  # type: ignore[index]
    with fast_linear_layers(model, CPU, AMD):
        model(inputs).sum().backward()
        assert [parameter.grad is None for parameter in model.parameters()] == [True, True, False]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.5
        found = model(inputs)
    torch.testing.assert_close(found, model(inputs))


@computes
def test_expanded_scalar_gradients_are_supported() -> None:
    """The gradient of `sum` is one number, expanded to the output's shape with strides of 0."""
    model, inputs = nn.Linear(33, 70), torch.randn(4, 33)
    with fast_linear_layers(model, CPU, AMD):
        model(inputs).sum().backward()
    assert model.weight.grad is not None
    torch.testing.assert_close(model.weight.grad, inputs.sum(0).expand(70, 33))


@computes
def test_processors_where_it_is_slower_keep_the_plain_layer() -> None:
    model, inputs = layers(), torch.randn(4, 33)
    with fast_linear_layers(model, CPU, "GenuineIntel"):
        assert "_Linear" not in type(model[0](inputs).grad_fn).__name__  # type: ignore[index]
