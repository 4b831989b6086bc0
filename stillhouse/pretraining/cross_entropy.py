"""Cross-entropy over a large vocabulary without holding all logits, and against a bag of words.

Shape suffixes: N states, E width of the word embeddings, V vocabulary, C states of one chunk, B passages, L tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

LOGITS_AT_ONCE = {"cpu": 32_000_000, "cuda": 100_000_000}
ALIGNED = 8
"""Products of half-precision matrices are much faster on a GPU if their rows begin at multiples of 16 bytes."""


def rows_at_once(device: torch.device, vocabulary: int) -> int:
    """How many rows of logits to hold: enough to keep the device busy, few enough to leave memory for the rest."""
    return max(1, LOGITS_AT_ONCE.get(device.type, LOGITS_AT_ONCE["cuda"]) // vocabulary)


def aligned_rows(vocabulary: int, device: torch.device, dtype: torch.dtype) -> int:
    """Rows to add to a vocabulary's matrix so that a GPU's fast products, which need multiples of 8, can be used."""
    half = dtype in (torch.bfloat16, torch.float16)
    return -vocabulary % ALIGNED if device.type == "cuda" and half else 0


def passage_weights(wanted_BL: Tensor) -> Tensor:
    """Weights [B, L] to average over a passage's wanted positions, then over passages (SimLM eq. 2)."""
    return wanted_BL / (wanted_BL.sum(1, keepdim=True).clamp(min=1) * len(wanted_BL))


def token_cross_entropy(
    states_NE: Tensor, weight_VE: Tensor, bias_V: Tensor, targets_N: Tensor, weights_N: Tensor
) -> Tensor:
    """sum_n weights_n * -log softmax(states_n W^T + b)[target_n], a scalar.

    Only `rows_at_once` rows of logits exist at a time. The forward pass computes the gradients chunk by
    chunk, so no logits are kept or computed twice. Products use autocast's precision, softmax at least float32.
    """
    chunk = rows_at_once(states_NE.device, len(weight_VE))
    loss: Tensor = _TokenCrossEntropy.apply(states_NE, weight_VE, bias_V, targets_N, weights_N, chunk)
    return loss


class _TokenCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any,
        states_NE: Tensor,
        weight_VE: Tensor,
        bias_V: Tensor,
        targets_N: Tensor,
        weights_N: Tensor,
        chunk: int,
    ) -> Tensor:
        device = states_NE.device.type
        fast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else weight_VE.dtype
        exact = torch.promote_types(weight_VE.dtype, torch.float32)
        need_states, need_weight, need_bias = context.needs_input_grad[:3]
        with torch.autocast(device, enabled=False):
            vocabulary, added = len(weight_VE), aligned_rows(len(weight_VE), states_NE.device, fast)
            weight, bias = weight_VE.to(fast), bias_V.to(fast)
            if added:
                weight = functional.pad(weight, (0, 0, 0, added))
                bias = functional.pad(bias, (0, added), value=-torch.inf)  # tokens of probability 0
            grad_states = torch.empty_like(states_NE) if need_states else None
            grad_weight: Tensor | None = None
            grad_bias = torch.zeros_like(bias_V) if need_bias else None
            loss = torch.zeros((), dtype=exact, device=states_NE.device)
            for start in range(0, len(states_NE), chunk):
                part = slice(start, start + chunk)
                states_CE = states_NE[part].to(fast)
                targets_C1, weights_C1 = targets_N[part, None], weights_N[part, None].to(exact)
                logits_CV = functional.linear(states_CE, weight, bias)
                slope_CV = torch.softmax(logits_CV, dim=-1, dtype=exact)
                # The largest probability is at least 1/V, so its logarithm is safe and saves a second exponential.
                logz_C1 = logits_CV.amax(1, keepdim=True).to(exact) - slope_CV.amax(1, keepdim=True).log()
                loss += (weights_C1 * (logz_C1 - logits_CV.gather(1, targets_C1).to(exact))).sum()
                if not (need_states or need_weight or need_bias):
                    continue
                slope_CV.scatter_add_(1, targets_C1, torch.full_like(weights_C1, -1))
                if grad_bias is not None:
                    slope_VC = slope_CV.T[:vocabulary].to(grad_bias.dtype)
                    grad_bias.addmv_(slope_VC, weights_C1[:, 0].to(grad_bias.dtype))
                fast_CV = slope_CV.to(fast)
                if grad_states is not None:
                    grad_states[part] = ((fast_CV @ weight) * weights_C1).to(grad_states.dtype)
                if need_weight:
                    made_VE = (fast_CV.T @ (states_CE * weights_C1).to(fast))[:vocabulary].to(weight_VE.dtype)
                    grad_weight = made_VE if grad_weight is None else grad_weight.add_(made_VE)
        if need_weight and grad_weight is None:
            grad_weight = torch.zeros_like(weight_VE)
        context.grads = (grad_states, grad_weight, grad_bias)
        return loss

    @staticmethod
    def backward(context: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients in place: a loss is back-propagated only once."""
        (slope,) = slopes
        grads = [None if grad is None else grad.mul_(slope.to(grad.dtype)) for grad in context.grads]
        del context.grads
        return (*grads, None, None, None)


def bag_of_words_cross_entropy(vectors_BE: Tensor, weight_VE: Tensor, ids_BL: Tensor, special_BL: Tensor) -> Tensor:
    """Cross-entropy of softmax(h E^T) against the uniform distribution over a passage's set of tokens, mean over B.

    This is BoW eq. 12 with the plain embedding matrix E. The target is never expanded over the vocabulary: the loss is
    logsumexp(z) minus the mean of z over the set. All tokens except special ones count, including punctuation and
    stop-words; a passage without tokens adds 0.
    """
    exact = torch.promote_types(weight_VE.dtype, torch.float32)
    logits_BV = functional.linear(vectors_BE, weight_VE).to(exact)
    sorted_BL = ids_BL.masked_fill(special_BL, -1).sort(dim=1).values
    first_BL = torch.ones_like(special_BL)
    first_BL[:, 1:] = sorted_BL[:, 1:] != sorted_BL[:, :-1]
    member_BL = (first_BL & (sorted_BL >= 0)).to(exact)
    size_B = member_BL.sum(1)
    mean_B = (logits_BV.gather(1, sorted_BL.clamp(min=0)) * member_BL).sum(1) / size_B.clamp(min=1)
    return ((logits_BV.logsumexp(1) - mean_B) * (size_B > 0)).mean()
