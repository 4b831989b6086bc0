"""The processor's vendor, because vendors differ in what is fast."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

AMD = "AuthenticAMD"
_CPUS = Path("/proc/cpuinfo")


@cache
def own_vendor(cpus: Path = _CPUS) -> str:
    """The vendor id of this machine's processor, such as `AuthenticAMD` or `GenuineIntel`; empty if unknown."""
    if cpus.is_file():
        lines = cpus.read_text(encoding="utf-8", errors="replace").splitlines()
        return next((line.partition(":")[2].strip() for line in lines if line.startswith("vendor_id")), "")
    return platform.processor().rpartition(", ")[2]  # "AMD64 Family 25 Model 33 Stepping 0, AuthenticAMD"
