"""Weight decay shrinks only weights, and does not change the rest of the optimiser."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForMaskedLM, DistilBertConfig, DistilBertForMaskedLM, PreTrainedModel
from transformers.trainer_pt_utils import get_parameter_names

from stillhouse.context import Context
from stillhouse.pretraining.model import BottleneckPretraining
from stillhouse.pretraining.objectives import find_objective
from stillhouse.training.loop import decay_groups, learning_rate_factor, train
from stillhouse.training.settings import TrainingConfig

STEPS = 6
TRAINER_PATTERNS = [r"bias", r"layernorm", r"rmsnorm", r"(?:^|\.)norm(?:$|\.)", r"_norm(?:$|\.)"]
"""The names that the Trainer of transformers excludes from decay, besides the parameters of `nn.LayerNorm`."""


def tiny(kind: str) -> PreTrainedModel:
    if kind == "distilbert":
        return DistilBertForMaskedLM(DistilBertConfig(vocab_size=20, dim=8, hidden_dim=8, n_layers=2, n_heads=2))
    sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    return BertForMaskedLM(BertConfig(vocab_size=20, **sizes))


@pytest.mark.parametrize(
    ("model", "objective"), [("bert", "simlm"), ("bert", "enhanced_decoding"), ("distilbert", "simlm")]
)
def test_the_groups_are_those_of_the_trainer_of_transformers(model: str, objective: str) -> None:
    training = BottleneckPretraining(tiny(model), find_objective(objective), "cls")
    with_decay = {*get_parameter_names(training, [nn.LayerNorm], TRAINER_PATTERNS)}
    own = dict(training.named_parameters())  # lists a tied parameter once
    names = {id(parameter): name for name, parameter in own.items()}
    decayed, exempt = ([names[id(value)] for value in group["params"]] for group in decay_groups(training, 0.1))
    assert decayed == [name for name in own if name in with_decay]
    assert exempt == [name for name in own if name not in with_decay]
    assert len(decayed) > 10 and len(exempt) > 5


class EveryKind(nn.Module):
    """A model with a weight, a bias, both kinds of normalisation, a separate parameter, and a frozen layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(4, 3)
        self.norm = nn.LayerNorm(3)
        self.root = nn.RMSNorm(3)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.fixed = nn.Linear(3, 3).requires_grad_(False)
        for module in (self.first, self.norm):
            nn.init.ones_(module.bias)

    def loss(self, step: int) -> Tensor:
        inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(step))
        return (self.scale * self.root(self.fixed(self.norm(self.first(inputs))))).pow(3).mean()


def trained(folder: Path, weight_decay: float, slope: float) -> EveryKind:
    config = TrainingConfig(
        learning_rate=0.1,
        warmup_ratio=0.2,
        precision="fp32",
        eval_steps=STEPS,
        max_grad_norm=0.5,
        weight_decay=weight_decay,
    )
    model = EveryKind()
    train(
        model,
        lambda step: slope * model.loss(step),
        lambda: -1.0,
        STEPS,
        config,
        Context(folder, "cpu", quiet=True),
    )
    return model


def test_with_zero_gradients_only_decayed_weights_shrink(tmp_path: Path) -> None:
    """If gradients are 0, AdamW only multiplies each weight by 1 - learning rate * decay in every step."""
    before, after = EveryKind(), trained(tmp_path, weight_decay=0.3, slope=0.0)
    shrunk = math.prod(1 - 0.1 * learning_rate_factor(step, STEPS, 2) * 0.3 for step in range(STEPS))
    assert shrunk < 0.95
    found = dict(after.named_parameters())
    for name, value in before.named_parameters():
        factor = shrunk if name in ("first.weight", "scale") else 1.0
        torch.testing.assert_close(
            found[name], value * factor, rtol=1e-6, atol=0, msg=lambda text, name=name: name + text
        )
