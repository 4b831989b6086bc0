"""Copies small arrays to the device without waiting for the work there."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor


def on_device(values: NDArray[Any] | Tensor, device: torch.device) -> Tensor:
    """A tensor on the device. On a CPU it shares the memory of `values`.

    A copy from ordinary memory to a GPU waits until the GPU has done all earlier work, which then stands still until
    Python has queued more. A copy from pinned memory is queued like any other work.
    """
    tensor = values if isinstance(values, Tensor) else torch.from_numpy(values)
    if device.type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
