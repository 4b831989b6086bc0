"""The precision to compute in on a device, the autocast context for it, and copies of small arrays to it. The fastest
precision depends on the CPU's vendor.
"""

import platform
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

AMD = "AuthenticAMD"
_CPUS = Path("/proc/cpuinfo")


@cache
def own_vendor(cpus: Path = _CPUS) -> str:
    """The vendor id of this machine's CPU, such as `AuthenticAMD` or `GenuineIntel`; empty if unknown."""
    if cpus.is_file():
        lines = cpus.read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")
    return platform.processor().rpartition(", ")[2]  # "AMD64 Family 25 Model 33 Stepping 0, AuthenticAMD"


def has_bf16(device: torch.device, vendor: str | None = None) -> bool:
    """Whether matrix products are faster in bf16 than in fp32 on the device.

    Emulated bf16 is slower. So are the AVX-512 bf16 instructions of Intel CPUs, by nearly half (85 against 150 GFLOP/s
    on a core without AMX), while on AMD CPUs they are 1.8 times as fast. `vendor` is the CPU's vendor id; None = this
    machine's.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities()
    by_vectors = capabilities.get("avx512_bf16") and (vendor or own_vendor()) == AMD
    return bool(by_vectors or capabilities.get("amx_bf16") or capabilities.get("bf16"))


def computed_in(precision: str, device: torch.device) -> torch.dtype:
    """The dtype of matrix products for a setting `precision`: "bf16", "fp32", or "auto" for the faster one."""
    if precision == "bf16" or (precision == "auto" and has_bf16(device)):
        return torch.bfloat16
    return torch.float32


def autocast(precision: str, device: torch.device) -> AbstractContextManager[None]:
    """The autocast context for a setting `precision`."""
    enabled = computed_in(precision, device) == torch.bfloat16
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)


def on_device(values: NDArray[Any] | Tensor, device: torch.device) -> Tensor:
    """A tensor on the device. On a CPU it shares the memory of `values`.

    A copy from ordinary memory to a GPU waits until the GPU has done all earlier work, which then stands still until
    Python has queued more. A copy from pinned memory is queued like any other work.
    """
    tensor = values if isinstance(values, Tensor) else torch.from_numpy(values)
    if device.type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
