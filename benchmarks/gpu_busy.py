"""How long a GPU's kernels run during a call: with the call's time without a profiler, how long the GPU waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile


def kernel_seconds(run: Callable[[], Any], device: torch.device) -> float:
    """The kernels' seconds, copies and fills included; 0 without a GPU.

    A profile makes Python slower but not the kernels, so compare this with the time of a call without one.
    """
    if device.type != "cuda":
        run()
        return 0.0
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        run()
        torch.cuda.synchronize(device)
    return float(sum(event.self_device_time_total for event in profiled.key_averages())) / 1e6
