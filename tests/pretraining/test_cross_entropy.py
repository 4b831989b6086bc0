"""The chunked losses compared with plain PyTorch on the full logits, values and gradients, in float64."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from stillhouse.pretraining import cross_entropy
from stillhouse.pretraining.cross_entropy import bag_of_words_cross_entropy, token_cross_entropy


@pytest.mark.parametrize("added", [0, 5])
@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
def test_token_cross_entropy(chunk: int, added: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with rows added to the vocabulary, as on a GPU."""
    monkeypatch.setattr(cross_entropy, "aligned_rows", lambda *_: added)
    monkeypatch.setattr(cross_entropy, "rows_at_once", lambda *_: chunk)
    torch.manual_seed(0)
    states = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(11, 5, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(11, dtype=torch.float64, requires_grad=True)
    targets, weights = torch.randint(11, (7,)), torch.rand(7, dtype=torch.float64)
    plain = (functional.cross_entropy(states @ weight.T + bias, targets, reduction="none") * weights).sum()
    loss = token_cross_entropy(states, weight, bias, targets, weights)
    torch.testing.assert_close(loss, plain)
    for got, expected in zip(
        torch.autograd.grad(3 * loss, (states, weight, bias)), torch.autograd.grad(3 * plain, (states, weight, bias))
    ):
        torch.testing.assert_close(got, expected)


def test_frozen_weights_get_no_gradient_and_states_do() -> None:
    states = torch.randn(4, 3, requires_grad=True)
    weight, bias = torch.randn(6, 3), torch.zeros(6, requires_grad=True)
    token_cross_entropy(states, weight, bias, torch.tensor([0, 1, 2, 3]), torch.ones(4)).backward()
    assert weight.grad is None
    assert states.grad is not None
    assert bias.grad is not None
    # Softmax minus one-hot sums to 0 in every row.
    assert float(bias.grad.sum()) == pytest.approx(0, abs=1e-5)


def test_bag_of_words_against_a_target_over_the_whole_vocabulary() -> None:
    torch.manual_seed(1)
    vectors = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(9, 4, dtype=torch.float64, requires_grad=True)
    ids = torch.tensor([[1, 5, 5, 6, 2], [1, 7, 2, 0, 0], [1, 8, 3, 8, 2]])
    special = torch.tensor([[1, 0, 0, 0, 1], [1, 0, 1, 1, 1], [1, 0, 0, 0, 1]], dtype=torch.bool)
    bags = [{5, 6}, {7}, {8, 3}]
    target = torch.zeros(3, 9, dtype=torch.float64)
    for row, bag in enumerate(bags):
        for token in bag:
            target[row, token] = 1 / len(bag)
    plain = -(target * (vectors @ weight.T).log_softmax(-1)).sum(-1).mean()
    loss = bag_of_words_cross_entropy(vectors, weight, ids, special)
    torch.testing.assert_close(loss, plain)
    for got, expected in zip(
        torch.autograd.grad(loss, (vectors, weight)), torch.autograd.grad(plain, (vectors, weight))
    ):
        torch.testing.assert_close(got, expected)
