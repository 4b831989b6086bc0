"""What a results page says of the machine and the versions that made its figures."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import torch


def machine(*packages: str) -> str:
    """A line: processor, cores, GPU, Python, and the versions of `packages`."""
    cores = len(os.sched_getaffinity(0))
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return f"Machine: {processor()}, {cores} cores, {gpu}; Python {platform.python_version()}, {versions}."


def processor() -> str:
    """The processor's name, as the kernel tells it."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()
