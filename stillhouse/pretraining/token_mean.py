"""The mean over all predicted tokens of a batch that is computed in parts (`loss_mean: token`).

The loss of a part is the mean over its own tokens, weighted by the part's share of the passages. If parts differ in
tokens per passage, this is not the mean over the whole batch. The factors computed here correct it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

TERMS = ("encoder", "decoder")
"""The terms of the loss that are means over tokens."""


def all_tokens(parts: Iterable[Mapping[str, int]], device: torch.device) -> Tensor:
    """The predicted tokens of all these parts, by term: float64 [2], in the order of `TERMS`."""
    counts = list(parts)
    return torch.tensor([sum(part[term] for part in counts) for term in TERMS], dtype=torch.float64, device=device)


def token_factors(part: Mapping[str, int], share: float, total: Tensor) -> dict[str, Tensor]:
    """The factor for each term of a part's loss, a float64 scalar; 1 if the part is the whole batch.

    `part`: its predicted tokens by term; `share`: its share of the batch's passages, the later weight of its loss;
    `total`: the tokens of the whole batch, from `all_tokens`.
    """
    return {term: part[term] / (tokens * share) for term, tokens in zip(TERMS, total.clamp(min=1))}
