"""Towers turn a text's tokens into one vector: a Transformer with a projection, or a bag of words (Chang et al. §4.1,
§4.2).

Shape suffixes: B texts, L tokens, D width of the vectors.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from stillhouse.models.acceleration.unpadded import can_end_in_first_token
from stillhouse.models.module_tower import ModuleTower, Role
from stillhouse.models.pooling import pool

__all__ = ["BagOfWordsTower", "ModuleTower", "Role", "Tower", "TransformerTower"]

BAG_WIDTH = 4096
"""Width of the word embeddings of `BagOfWordsTower`. Chang et al. §4.2 gives only the size of the model, 128 M. This
width, BERT's vocabulary and two layers of width 512 make 127.4 M."""
BAG_HIDDEN = 512


class TransformerTower(nn.Module):
    """Pools hidden states in float32, then applies an optional linear layer (Chang et al. 2020 §4.1)."""

    def __init__(self, encoder: PreTrainedModel, pooling: str, projection: nn.Linear | None = None) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling
        self.projection = projection
        alone = pooling == "cls" and can_end_in_first_token(encoder)
        self._options = {"first_token_alone": True} if alone else {}

    @property
    def width(self) -> int:
        """Width of the vectors."""
        return self.projection.out_features if self.projection is not None else int(self.encoder.config.hidden_size)

    def forward(self, ids_BL: Tensor, attention_BL: Tensor) -> Tensor:
        """Vectors [B, D] of ids int64 [B, L]; attention [B, L] is true or 1 at tokens."""
        output = self.encoder(input_ids=ids_BL, attention_mask=attention_BL.long(), **self._options)
        vectors_BD = pool(output.last_hidden_state.float(), attention_BL, self.pooling)
        return vectors_BD if self.projection is None else self.projection(vectors_BD)


class BagOfWordsTower(nn.Module):
    """BoW-MLP (Chang et al. §4.2): the mean of the word embeddings, then two linear layers with tanh in between.

    The ids `added` around and between texts do not count as words ([UNK] does). A text without words has a mean of
    zero. `width` is the width of the vectors.
    """

    def __init__(
        self, vocabulary: int, added: tuple[int, ...], width: int, embedding: int = BAG_WIDTH, hidden: int = BAG_HIDDEN
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        # The scale of BERT's embeddings; the default of nn.Embedding would saturate tanh.
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.hidden = nn.Linear(embedding, hidden)
        self.output = nn.Linear(hidden, width)
        self.register_buffer("added", torch.tensor(added), persistent=False)

    @property
    def width(self) -> int:
        """Width of the vectors."""
        return self.output.out_features

    def forward(self, ids_BL: Tensor, attention_BL: Tensor) -> Tensor:
        """Vectors [B, D] of ids int64 [B, L]; attention [B, L] is true or 1 at tokens."""
        word_BL = attention_BL.bool() & ~torch.isin(ids_BL, self.get_buffer("added"))
        mean_BD = pool(self.embedding(ids_BL), word_BL, "mean")
        return self.output(torch.tanh(self.hidden(mean_BD)))

    def drawn_anew(self) -> BagOfWordsTower:
        """A new tower of the same sizes, with parameters drawn from torch's random state."""
        vocabulary, embedding = self.embedding.weight.shape
        added = tuple(self.get_buffer("added").tolist())
        return BagOfWordsTower(vocabulary, added, self.width, embedding, self.hidden.out_features)


Tower = TransformerTower | BagOfWordsTower | ModuleTower
