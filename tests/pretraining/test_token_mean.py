"""With `loss_mean: token`, parts of any size give the loss and gradient of one mean over all predicted tokens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import AutoModelForMaskedLM

from stillhouse.pretraining.bottleneck_loss import BottleneckLoss, DrawnPart
from stillhouse.pretraining.corrupted import Corruptor, MaskedPassages
from stillhouse.pretraining.model import BottleneckPretraining, LossOptions
from stillhouse.pretraining.settings import PretrainingConfig
from stillhouse.pretraining.tokens import PassageBatch, SpecialTokens, TokenCache

SPECIALS = SpecialTokens(cls=2, sep=3, pad=0, mask=4, all=(0, 1, 2, 3, 4))
LENGTHS = np.array([1, 9, 2, 14, 3, 5, 1])
UNMASKED = [0, 4]
"""Passages without masked tokens, so that a part may have no token to predict."""
DIVISIONS = [[7], [3, 4], [1, 6], [1] * 7, [4, 1, 2]]


def drawn_whole(make: Corruptor) -> MaskedPassages:
    drawn = make.draw(np.arange(len(LENGTHS)), np.random.default_rng(0))
    for mask_BL in drawn.masks:
        mask_BL[UNMASKED] = False
    return drawn


def some(drawn: MaskedPassages, rows: slice) -> MaskedPassages:
    old = drawn.passages
    passages = PassageBatch(old.ids[rows], old.attention[rows], old.special[rows], old.word_starts[rows], None)
    standing_in = {number: ids_BL[rows] for number, ids_BL in drawn.standing_in.items()}
    return replace(drawn, passages=passages, masks=[mask_BL[rows] for mask_BL in drawn.masks], standing_in=standing_in)


def found(loss: Tensor, module: BottleneckPretraining) -> dict[str, Tensor]:
    """Return the loss and the gradients, and reset the gradients."""
    grads = {name: values.grad.clone() for name, values in module.named_parameters() if values.grad is not None}
    module.zero_grad(set_to_none=True)
    return {"loss": loss.detach(), **grads}


def slow(module: BottleneckPretraining, make: Corruptor, drawn: MaskedPassages) -> Tensor:
    """Add the encoder's and the decoder's mean loss of predicted tokens, computed from the logits of all positions."""
    batch = make.batch(drawn)
    hidden_BLD = module.encode(batch.encoder.ids_BL, batch.attention_BL)
    states = [(hidden_BLD, batch.encoder.mask_BL)]
    if batch.decoder is not None:
        all_tokens = module.objective.name == "auto_regression"
        wanted_BL = ~batch.special_BL if all_tokens else batch.decoder.mask_BL
        vectors_BD = module.vector(hidden_BLD, batch.attention_BL)
        states.append((module.decode(vectors_BD, None, batch), wanted_BL))
    means = [cross_entropy(module.model.cls(each_BLD)[at_BL], batch.ids_BL[at_BL]) for each_BLD, at_BL in states]
    return torch.stack(means).sum()


@pytest.mark.parametrize("objective", ["mlm", "enc_dec_mlm", "auto_regression"])
def test_any_division_has_the_gradient_of_one_mean(tiny_model: Path, objective: str) -> None:
    torch.manual_seed(0)
    config = PretrainingConfig(objective=objective, loss_mean="token", max_length=20)
    row = config.row()
    assert row is not None
    random = np.random.default_rng(1)
    offsets = np.concatenate([[0], np.cumsum(LENGTHS)])
    ids = random.integers(5, 27, size=offsets[-1]).astype(np.int32)
    cache = TokenCache(ids, offsets, np.ones(len(ids), dtype=bool), SPECIALS)
    model = AutoModelForMaskedLM.from_pretrained(tiny_model).double()
    module = BottleneckPretraining(model, row, "cls", options=LossOptions(loss_mean="token")).double().eval()
    make = Corruptor(cache, 27, row, config, torch.device("cpu"))
    whole = drawn_whole(make)
    loss = slow(module, make, whole)
    loss.backward()  # type: ignore[no-untyped-call]
    expected = found(loss, module)
    assert sum(bool(values.abs().max() > 1e-4) for values in expected.values()) > 10
    of_steps = BottleneckLoss(module, make, config, np.arange(1), steps=1)
    for division in DIVISIONS:
        ends = np.cumsum(division)
        parts = [
            DrawnPart(number, size / len(LENGTHS), some(whole, slice(end - size, end)))
            for number, (size, end) in enumerate(zip(division, ends))
        ]
        total = torch.zeros((), dtype=torch.float64)
        for part in of_steps.training(parts, 0):
            total += part.detach()
            part.backward()  # type: ignore[no-untyped-call]
        made = found(total, module)
        assert made.keys() == expected.keys()
        for name, values in expected.items():
            torch.testing.assert_close(made[name], values, rtol=1e-6, atol=1e-7, msg=lambda text, n=name: n + text)
