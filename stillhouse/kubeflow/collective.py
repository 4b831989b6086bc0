"""Checks that processes on this machine, one per GPU, can sum numbers together, as training does at every step.

An installed NCCL does not prove it. A /dev/shm that is too small, GPUs that cannot reach each other's memory, or a
broken network interface only show up when numbers are sent. So torchrun starts this module once per GPU, and all of
them are ended if they do not answer in time.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

SECONDS = 120.0
"""How long processes may take to start, load PyTorch and sum: about ten times as long as with eight GPUs."""
NUMBERS = 1 << 20
"""The float32 numbers that each process adds: 4 MiB, which use every path that NCCL has between two GPUs."""
SAID = "collective: "
"""The start of the line in which a process says why it failed."""
LONGEST = 400


def failure_together(processes: int, backend: str = "nccl", seconds: float = SECONDS) -> str:
    """The reason why `processes` processes, each with its own GPU under NCCL, cannot sum numbers; "" if they can."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m", __name__]
    started = subprocess.Popen(
        [sys.executable, *torchrun, backend],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={"NCCL_DEBUG": "WARN"} | os.environ,
        start_new_session=True,
    )
    try:
        said, _ = started.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGTERM)  # torchrun, which has its processes in sessions of their own, ends them
        started.communicate()
        return f"{processes} processes did not finish the sum within {seconds:.0f} s"
    if not started.returncode:
        return ""
    reasons = [
        line.partition(mark)[2].strip() for mark in ("NCCL WARN", SAID) for line in said.split("\n") if mark in line
    ]
    return (reasons or [said.strip()])[0][-LONGEST:]


def add_up(backend: str) -> None:
    """One process: adds its number to the others'. Raises PyTorch's errors, or `ArithmeticError` for a wrong sum."""
    import torch
    from torch import distributed

    rank, processes = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    numbers = torch.full((NUMBERS,), rank + 1.0, device=device)
    distributed.init_process_group(backend)
    distributed.all_reduce(numbers)
    expected, found = processes * (processes + 1) / 2, (numbers.min().item(), numbers.max().item())
    distributed.destroy_process_group()
    if found != (expected, expected):
        raise ArithmeticError(f"the sum is {found[0]:g} to {found[1]:g}, not {expected:g}")


if __name__ == "__main__":
    try:
        add_up(sys.argv[1])
    except Exception as error:  # reported in one line, which the parent process reads
        print(f"{SAID}{type(error).__name__}: {' '.join(str(error).split())}", flush=True)
        sys.exit(1)
