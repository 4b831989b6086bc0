"""The sampled softmax compared with its formula in float64, and with the full softmax that it estimates."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from stillhouse.pretraining.pairs.sampled_softmax import sampled_softmax_loss


def slow_loss(
    query: list[list[float]], passage: list[list[float]], log_q: list[float], same: list[list[bool]], temperature: float
) -> float:
    """Mean of -log(exp(s_ii)/q_i / sum_j exp(s_ij)/q_j) over the candidates j that are i or no accidental hit."""
    total = 0.0
    for i, q in enumerate(query):
        terms = {}
        for j, d in enumerate(passage):
            if j == i or not same[i][j]:
                terms[j] = math.exp(sum(a * b for a, b in zip(q, d)) / temperature) / math.exp(log_q[j])
        total -= math.log(terms[i] / sum(terms.values()))
    return total / len(query)


def case(seed: int, size: int = 7, width: int = 5) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    query, passage = (torch.tensor(rng.normal(size=(size, width))) for _ in range(2))
    log_q = torch.log(torch.tensor(rng.dirichlet(np.ones(size))))
    same = torch.tensor(rng.random((size, size)) < 0.2)
    return query, passage, log_q, same | torch.eye(size, dtype=torch.bool)


@pytest.mark.parametrize("temperature", [1.0, 0.05, 3.0])
@pytest.mark.parametrize("seed", range(4))
def test_loss_and_gradient_are_those_of_the_formula(seed: int, temperature: float) -> None:
    query, passage, log_q, same = case(seed)
    query, passage = query.requires_grad_(), passage.requires_grad_()
    loss = sampled_softmax_loss(query, passage, log_q, same, temperature)
    arguments = (log_q.tolist(), same.tolist(), temperature)
    assert abs(loss.item() - slow_loss(query.tolist(), passage.tolist(), *arguments)) < 1e-5 * max(1, loss.item())
    loss.backward()
    step = 1e-6
    for tensor in (query, passage):
        assert tensor.grad is not None
        for i, k in [(0, 0), (2, 3), (6, 4)]:
            losses = []
            for sign in (1, -1):
                moved = {"q": query.detach().clone(), "d": passage.detach().clone()}
                moved["q" if tensor is query else "d"][i, k] += sign * step
                losses.append(slow_loss(moved["q"].tolist(), moved["d"].tolist(), *arguments))
            assert abs(float(tensor.grad[i, k]) - (losses[0] - losses[1]) / (2 * step)) < 2e-5


def test_a_hand_computed_case() -> None:
    # Scores 0 everywhere: query 0 has exp(0)/0.5 against exp(0)/0.25, so p = 2 / (2 + 4); query 1 the other way.
    zeros = torch.zeros(2, 3)
    loss = sampled_softmax_loss(zeros, zeros, torch.log(torch.tensor([0.5, 0.25])), torch.eye(2, dtype=torch.bool))
    assert abs(float(loss) - (math.log(3) + math.log(1.5)) / 2) < 1e-6


def test_an_accidental_hit_is_not_a_negative() -> None:
    query, passage, log_q, _ = case(1, size=2)
    everything = torch.ones(2, 2, dtype=torch.bool)
    assert float(sampled_softmax_loss(query, passage, log_q, everything)) == 0.0


def test_the_correction_makes_the_denominator_unbiased() -> None:
    # Candidates drawn with probabilities q: the mean of exp(s) / q over draws is the sum over all passages.
    rng = np.random.default_rng(0)
    scores = rng.normal(size=30)
    q = rng.dirichlet(np.ones(30))
    draws = rng.choice(30, size=400_000, p=q)
    corrected = np.exp(scores[draws] - np.log(q[draws])).mean()
    assert abs(corrected / np.exp(scores).sum() - 1) < 0.02
    # On a large sample, the loss of one query is that of the full softmax, up to the log of the number of draws.
    sample = rng.choice(30, size=3000, p=q)
    query = torch.zeros(3000, 1)
    query[0] = 1
    passage = torch.tensor(scores[sample])[:, None]
    log_q = torch.log(torch.tensor(q[sample]))
    own = torch.eye(3000, dtype=torch.bool)
    both = [sampled_softmax_loss(vectors, passage, log_q, own) for vectors in (query, torch.zeros(3000, 1))]
    # All other queries are zero in both, so the losses differ by the first query's share alone.
    first = float(both[0] - both[1]) * 3000
    full = -scores[sample[0]] + np.log(np.exp(scores).sum() / 30)
    assert abs(first - full) < 0.1
