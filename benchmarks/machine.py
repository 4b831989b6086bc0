"""What a results page says about the machine and the versions that produced its figures."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path


def machine(*packages: str) -> str:
    """A line: processor, cores, the threads that PyTorch computes with, GPU, Python, and the versions of `packages`."""
    import torch  # not above: what measures memory alone shall not hold PyTorch

    cores = len(os.sched_getaffinity(0))
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    used = torch.get_num_threads()
    threads = "1 thread" if used == 1 else f"{used} threads"
    return f"Machine: {processor()}, {cores} cores, {threads}, {gpu}; Python {platform.python_version()}, {versions}."


def processor() -> str:
    """The processor's name, as the kernel reports it."""
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def peak_mib() -> float:
    """The peak memory of this process. `ru_maxrss` would start from its parent's."""
    return memory_mib("VmHWM")


def memory_mib(field: str) -> float:
    """Memory of this process in MiB, by the kernel's name for it: `VmHWM`, `VmRSS`, `RssAnon`."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise OSError(f"the kernel does not report a process's {field}")
