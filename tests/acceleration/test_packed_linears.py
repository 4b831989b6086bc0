"""Packed linear layers compared with plain ones."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from stillhouse.acceleration.linear_layers import can_pack, packed_linears

CPU = torch.device("cpu")
packs = pytest.mark.skipif(not can_pack(torch.float32, CPU), reason="this processor has no packed linear layers")


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(33, 70), nn.Tanh(), nn.Linear(70, 1, bias=False))


@packs
@pytest.mark.parametrize("shape", [(1, 33), (5, 33), (2, 7, 33)])
def test_packed_layers_give_what_float64_gives(shape: tuple[int, ...]) -> None:
    layers, inputs = model(), torch.randn(shape)
    expected = model().double()(inputs.double())
    with torch.inference_mode(), packed_linears(layers, torch.float32, CPU):
        assert torch.allclose(layers(inputs).double(), expected, atol=1e-6)


@packs
@pytest.mark.skipif(not can_pack(torch.bfloat16, CPU), reason="no bf16 here")
def test_packed_bf16_is_as_near_as_autocast() -> None:
    layers, inputs = model(), torch.randn(64, 33)
    expected = model().double()(inputs.double())
    with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        theirs = (layers(inputs).double() - expected).abs().max()
        with packed_linears(layers, torch.bfloat16, CPU):
            ours = (layers(inputs).double() - expected).abs().max()
    assert 0 < ours <= 2 * theirs
