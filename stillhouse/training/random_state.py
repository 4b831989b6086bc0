"""Sets PyTorch's random state, as often as a training does."""

from __future__ import annotations

import torch


def seed_torch(seed: int) -> None:
    """Sets the state of the processor's random numbers, and that of every GPU where CUDA has begun.

    `torch.manual_seed` draws the same numbers, but formats the call stack three times for devices that have not begun:
    milliseconds, which a training would spend in every step.
    """
    if torch.cuda.is_initialized():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)
