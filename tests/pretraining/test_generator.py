"""The generator samples from its softmax, only at masked positions, and gives the same result for the same seed."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from small_bert import small_bert

from stillhouse.pretraining.generator import Generator
from stillhouse.pretraining.tokens import SpecialTokens

SPECIALS = SpecialTokens(cls=2, sep=3, pad=0, mask=4, all=(0, 1, 2, 3, 4))
VOCABULARY = 12


@pytest.fixture(scope="module")
def generator() -> Generator:
    return Generator.of(small_bert(VOCABULARY, 8).train(), SPECIALS, torch.device("cpu"))


def test_samples_follow_the_softmax_of_the_masked_input(generator: Generator) -> None:
    copies = 20000
    ids = torch.tensor([[2, 6, 7, 8, 3]]).repeat(copies, 1)
    mask = torch.tensor([[False, False, True, False, False]]).repeat(copies, 1)
    (replaced,), _ = generator.replace(ids, torch.ones_like(mask), [mask], np.random.default_rng(0))
    torch.testing.assert_close(replaced[~mask], ids[~mask])
    with torch.no_grad():
        logits = generator.model(input_ids=torch.tensor([[2, 6, 4, 8, 3]])).logits[0, 2].double()
    logits[list(SPECIALS.all)] = -torch.inf
    shares = torch.bincount(replaced[mask], minlength=VOCABULARY) / copies
    assert shares[list(SPECIALS.all)].sum() == 0
    np.testing.assert_allclose(shares, torch.softmax(logits, 0), atol=0.012)


def test_it_is_frozen_and_in_evaluation_mode(generator: Generator) -> None:
    assert not generator.model.training
    assert not any(parameter.requires_grad for parameter in generator.model.parameters())


def test_a_generator_that_learns_gives_its_masked_token_loss_and_samples_without_gradient(generator: Generator) -> None:
    """Compares with a slow version: the mean over each passage's positions of the first mask, then over passages."""
    model = copy.deepcopy(generator.model).double()
    learner = Generator.of(model, SPECIALS, torch.device("cpu"), learns=True)
    ids = torch.tensor([[2, 6, 7, 8, 3], [2, 9, 10, 3, 0]])
    attention = ids != 0
    first, second = torch.zeros_like(attention), torch.zeros_like(attention)
    first[[0, 0, 1], [1, 3, 2]] = True
    second[0, 2] = True
    replaced, loss = learner.replace(ids, attention, [first, second], np.random.default_rng(0))
    assert loss is not None and not replaced[0].requires_grad
    logits = model(input_ids=ids.masked_fill(first, SPECIALS.mask), attention_mask=attention.long()).logits
    log_p = logits - logits.exp().sum(-1, keepdim=True).log()
    slow = -((log_p[0, 1, 6] + log_p[0, 3, 8]) / 2 + log_p[1, 2, 10]) / 2
    torch.testing.assert_close(loss, slow, rtol=0, atol=1e-5)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for left, right in zip(*(torch.autograd.grad(value, parameters, allow_unused=True) for value in (loss, slow))):
        if left is not None or right is not None:
            torch.testing.assert_close(left, right, rtol=0, atol=1e-5)
    assert generator.replace(ids, attention, [first], np.random.default_rng(0))[1] is None
