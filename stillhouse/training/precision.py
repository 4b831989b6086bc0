"""Which precision to compute in, and the autocast context for it."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch


def has_bf16(device: torch.device) -> bool:
    """Whether matrix products in bf16 run in hardware there. Emulated bf16 is slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") or capabilities.get("bf16"))


def computed_in(precision: str, device: torch.device) -> torch.dtype:
    """The type of matrix products under a setting `precision`: "bf16", "fp32", or "auto" for bf16 in hardware."""
    assert precision in ("auto", "fp32", "bf16")
    if precision == "bf16" or (precision == "auto" and has_bf16(device)):
        return torch.bfloat16
    return torch.float32


def autocast(precision: str, device: torch.device) -> AbstractContextManager[None]:
    """The autocast of a setting `precision`."""
    enabled = computed_in(precision, device) == torch.bfloat16
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled)
