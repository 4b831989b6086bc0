"""Values and gradients of each loss, compared with a slow version of the paper's formula in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from stillhouse.training.losses import LossBatch, contrastive_loss, distillation_loss, listwise_loss
from stillhouse.training.settings import FORMS

TAU = 0.5


def vectors(*shape: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(values, dim=-1).requires_grad_()


def slow_contrastive(queries, passages, positive, right, form: str) -> float:  # type: ignore[no-untyped-def]
    """Compute the loss one query and one negative at a time; `right[i]` is the set of passages that answer query i."""

    def phi(a, b) -> float:  # type: ignore[no-untyped-def]
        return math.exp(float(np.dot(a, b)) / TAU)

    total = 0.0
    for i, query in enumerate(queries):
        gold = passages[positive[i]]
        below = phi(query, gold)
        for j, passage in enumerate(passages):
            if j not in right[i]:
                below += phi(query, passage)
                if form == "simlm":
                    below += phi(gold, passage)
        if form == "simlm_code":
            for j, other in enumerate(queries):
                if positive[i] not in right[j]:
                    below += phi(gold, other)
                if not right[i] & right[j]:
                    below += phi(query, other)
            for j in set(positive):
                if not any({positive[i], j} <= answers for answers in right):
                    below += phi(gold, passages[j])
        total += -math.log(phi(query, gold) / below)
    return total / len(queries)


def numeric_gradient(function, values: torch.Tensor, step: float = 1e-6) -> np.ndarray:  # type: ignore[no-untyped-def]
    base = values.detach().numpy()
    gradient = np.zeros_like(base)
    for place in np.ndindex(*base.shape):
        up, down = base.copy(), base.copy()
        up[place] += step
        down[place] -= step
        gradient[place] = (function(up) - function(down)) / (2 * step)
    return gradient


BATCHES = {
    "an answer each": ([0, 3, 5], [{0}, {3}, {5}]),
    "a passage that answers two queries": ([0, 3, 5], [{0, 5}, {3}, {5}]),
    "two queries of one positive": ([2, 4, 2], [{2}, {4}, {2}]),
    "two positives of one query": ([0, 1, 4, 6], [{0, 1}, {1}, {4, 6, 2}, {6}]),
    "a query drawn twice": ([0, 1, 6], [{0, 1}, {0, 1}, {6}]),
    "one query": ([1], [{1, 2}]),
}


@pytest.mark.parametrize("length", ["cosine", "dot product"])
@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("form", FORMS)
def test_contrastive_losses_are_their_equations(form: str, batch: str, length: str) -> None:
    """SimLM eq. 3, its authors' code and CDMAE eq. 10. A right answer in the batch is never a negative."""
    positive, right = BATCHES[batch]
    queries, passages = vectors(len(positive), 4, seed=0), vectors(7, 4, seed=1)
    if length == "dot product":
        queries, passages = ((1.5 * values).detach().requires_grad_() for values in (queries, passages))
    negative = torch.tensor([[j not in answers for j in range(7)] for answers in right])
    loss = contrastive_loss(LossBatch(queries, passages, torch.tensor(positive), negative), TAU, form)
    plain = (queries.detach().numpy(), passages.detach().numpy())
    assert loss.item() == pytest.approx(slow_contrastive(*plain, positive, right, form), abs=1e-10)
    loss.backward()
    by_queries = numeric_gradient(lambda value: slow_contrastive(value, plain[1], positive, right, form), queries)
    by_passages = numeric_gradient(lambda value: slow_contrastive(plain[0], value, positive, right, form), passages)
    assert np.allclose(queries.grad, by_queries, atol=1e-8) and np.allclose(passages.grad, by_passages, atol=1e-8)


def slow_distillation(student, teacher, candidate) -> float:  # type: ignore[no-untyped-def]
    """SimLM eq. 5: sum of p_ranker log(p_ranker / p_ret) over a query's candidates."""
    total = 0.0
    for s, t, c in zip(student, teacher, candidate):
        kept = [k for k in range(len(c)) if c[k]]
        ranker = [math.exp(t[k]) for k in kept]
        retriever = [math.exp(s[k]) for k in kept]
        for k in range(len(kept)):
            p, q = ranker[k] / sum(ranker), retriever[k] / sum(retriever)
            total += p * math.log(p / q)
    return total / len(student)


def test_distillation_loss_is_equation_5() -> None:
    generator = torch.Generator().manual_seed(3)
    student = torch.randn(3, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    teacher = 3 * torch.randn(3, 4, generator=generator, dtype=torch.float64)
    candidate = torch.tensor([[True] * 4, [True, True, False, False], [True, False, False, True]])
    loss = distillation_loss(student, teacher, candidate)
    plain = (teacher.tolist(), candidate.tolist())
    assert loss.item() == pytest.approx(slow_distillation(student.tolist(), *plain), abs=1e-10)
    loss.backward()
    expected = numeric_gradient(lambda value: slow_distillation(value, *plain), student)
    assert np.allclose(student.grad, expected, atol=1e-6)


def slow_listwise(scores, candidate) -> float:  # type: ignore[no-untyped-def]
    """SimLM eq. 4 with the positive in column 0."""
    total = 0.0
    for s, c in zip(scores, candidate):
        total += -math.log(math.exp(s[0]) / sum(math.exp(s[k]) for k in range(len(s)) if c[k]))
    return total / len(scores)


def test_listwise_loss_is_equation_4() -> None:
    scores = torch.randn(3, 4, generator=torch.Generator().manual_seed(5), dtype=torch.float64, requires_grad=True)
    candidate = torch.tensor([[True] * 4, [True, True, False, True], [True, False, False, False]])
    loss = listwise_loss(scores, candidate)
    assert loss.item() == pytest.approx(slow_listwise(scores.tolist(), candidate.tolist()), abs=1e-10)
    loss.backward()
    expected = numeric_gradient(lambda value: slow_listwise(value, candidate.tolist()), scores)
    assert np.allclose(scores.grad, expected, atol=1e-6)
