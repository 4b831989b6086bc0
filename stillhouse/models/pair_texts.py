"""What every cross-encoder does: it tokenizes pairs of a query and a passage, and scores them.

Shape suffixes: P pairs, L tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from stillhouse.models.encoder import TokenizedTexts


class PairScorer(nn.Module, ABC):
    """A model that scores pairs; `activation` makes a score of a raw score."""

    activation: nn.Module

    @abstractmethod
    def pairs(self, queries: Sequence[str], passages: Sequence[str]) -> PairTexts:
        """Tokenize pairs."""

    @abstractmethod
    def forward(self, ids_PL: Tensor, mask_PL: Tensor, types_PL: Tensor) -> Tensor:
        """Raw scores [P], float32; the three int64 tensors are those of `PairTexts.batch`."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write a folder for `CrossEncoder.load`."""


class PairTexts:
    """Tokenized pairs with their token types or halves (0 for the query, 1 for the passage)."""

    def __init__(self, ids: TokenizedTexts, types: TokenizedTexts) -> None:
        self.ids = ids
        self._types = types

    def __len__(self) -> int:
        return len(self.ids)

    def batch(self, rows: Sequence[int] | np.ndarray, device: object) -> tuple[Tensor, Tensor, Tensor]:
        ids_PL, mask_PL = self.ids.batch(rows, device)  # type: ignore[arg-type]
        types_PL, _ = self._types.batch(rows, device)  # type: ignore[arg-type]
        return ids_PL, mask_PL, types_PL
