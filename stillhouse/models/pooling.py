"""How token states become one vector.

Shape suffixes: B texts, L tokens, D hidden width.
"""

import torch
from torch import Tensor

from stillhouse.models.encoder_settings import POOLINGS


def pool(hidden_BLD: Tensor, mask_BL: Tensor, pooling: str) -> Tensor:
    """One vector per text, [B, D]: the first token's state ("cls") or the mean over the tokens that the mask keeps."""
    assert pooling in POOLINGS, pooling
    if pooling == "cls":
        return hidden_BLD[:, 0]
    weights_BL1 = mask_BL.unsqueeze(-1).to(hidden_BLD.dtype)
    return (hidden_BLD * weights_BL1).sum(1) / weights_BL1.sum(1).clamp(min=1)


def normalized(vectors_BD: Tensor) -> Tensor:
    """The vectors scaled to length 1."""
    return torch.nn.functional.normalize(vectors_BD, dim=-1)
